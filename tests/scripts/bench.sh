#!/bin/bash
# usage: [ONLY=cell,…] [BENCH_SECONDS=20] [BENCH_RUNS=5] [BENCH_PEERS=no] bench.sh
# postroom, its peers and the bare statements on one private server of Debian's Postgres 15; about 40
# minutes. A whole run writes docs/benchmark.md and the README's lines about it; a try writes the same
# below $POSTROOM_CACHE/bench/try, so that nothing of a try gets into the documents.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

"$SCRIPTS/setup.sh" check
lock_cache
begin_run
server=$POSTROOM_CACHE/bench/debian-15
export PG_CONFIG=$server/tree/usr/lib/postgresql/15/bin/pg_config
stage "tools" "$SCRIPTS/setup.sh" tools
stage "Debian's Postgres 15 and PGQ" "$SCRIPTS/debian-server.sh" "$server"
stage "extension, optimised" cargo pgrx install --release -p postroom-extension -c "$PG_CONFIG"
stage "benchmark program, optimised" cargo build --release -p postroom-tests --features bench --bin bench
BENCH_PACKAGES=$(paste -sd, "$server/packages" | sed 's/,/, /g')
export BENCH_PACKAGES
if [ -n "${ONLY:-}${BENCH_SECONDS:-}${BENCH_RUNS:-}${BENCH_PEERS:-}" ]; then
    export BENCH_DOCS=$POSTROOM_CACHE/bench/try
    mkdir -p "$BENCH_DOCS"
fi
# Where it is allowed, before whatever else the machine does.
renice -n -5 $$ >/dev/null 2>&1 || true
echo
"$CARGO_TARGET_DIR/release/bench" 9>&-
