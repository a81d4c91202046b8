#!/bin/bash
# usage: [PAIRS=15] [SECONDS_EACH=5] [CLIENTS=32] [SYNC=on|off] pairs.sh [working|beside|hung|readers]...
# What wake-ups cost those who store, and readers of the order those who append, with and without in turns,
# on an optimised build; fails below 0.95.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$SCRIPTS/setup.sh" check
lock_cache
begin_run
stage "Postgres 17, tools" "$SCRIPTS/setup.sh" tools pg 17
# A tree of its own, so that what is optimised does not replace what tests look at.
tree=$POSTROOM_CACHE/pg-optimised/17
rm -rf "$tree"; mkdir -p "${tree%/*}"; cp -a "$PG_HOME/17" "$tree"
export PG_CONFIG=$tree/bin/pg_config
stage "optimised extension" cargo pgrx install --release -p postroom-extension -c "$PG_CONFIG"
stage "program" cargo build -p postroom-tests --bin pairs
# bash keeps SECONDS for itself.
SECONDS_EACH=${SECONDS_EACH:-5} "$CARGO_TARGET_DIR/debug/pairs" "$@" 9>&-
