# shellcheck shell=bash
# Sourced by every script here; also useful in a shell before calling cargo by hand.
# Everything that is downloaded or built lives outside the clone, so a fresh clone starts warm.

export PGRX_VERSION=0.18.1
export PG_MAJORS="${PG_MAJORS:-15 16 17 18}"

# The server's own user must be able to read the cache: as root it therefore cannot lie below /root.
if [ -z "${POSTROOM_CACHE:-}" ]; then
    if [ "$(id -u)" = 0 ]; then POSTROOM_CACHE=/var/cache/postroom
    else POSTROOM_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/postroom; fi
fi
export POSTROOM_CACHE

export PG_HOME="$POSTROOM_CACHE/pg"          # PG_HOME/17/bin/pg_config
export PGRX_HOME="$POSTROOM_CACHE/pgrx"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$POSTROOM_CACHE/target}"
export NATS_SERVER="${NATS_SERVER:-$POSTROOM_CACHE/tools/bin/nats-server}"
export PGBOUNCER="${PGBOUNCER:-$POSTROOM_CACHE/tools/bin/pgbouncer}"
export FLIGHTS_CSV="${FLIGHTS_CSV:-$POSTROOM_CACHE/data/flights.csv}"
case ":$PATH:" in *":$POSTROOM_CACHE/tools/bin:"*) ;; *) export PATH="$POSTROOM_CACHE/tools/bin:$PATH" ;; esac

# Postgres refuses root, so root runs servers as this user. No Debian package is needed for it.
if [ -z "${POSTROOM_OS_USER:-}" ]; then
    if id postgres >/dev/null 2>&1; then POSTROOM_OS_USER=postgres; else POSTROOM_OS_USER=nobody; fi
fi
export POSTROOM_OS_USER

# Keeps `cargo pgrx` on the rustflags of plain cargo; with its own extra link argument every
# dependency would be compiled a second time.
export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1

# A panic hook that prints a backtrace inside the server slows every error down and changes its text.
unset RUST_BACKTRACE
