#!/bin/bash
# usage: [BROKER=nats|none] [FLIGHTS=20000|all|N] demo.sh
# From a fresh clone to a running story: tools, a throw-away server, the extension, the program.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
export BROKER=${BROKER:-nats} FLIGHTS=${FLIGHTS:-20000}
case $BROKER in nats) parts="nats flights" ;; none) parts=flights ;; *) die "BROKER is nats or none, not $BROKER" ;; esac
[[ $FLIGHTS =~ ^([0-9]+|all)$ ]] || die "FLIGHTS is a number or all, not $FLIGHTS"

"$SCRIPTS/setup.sh" check
lock_cache
begin_run
export PG_CONFIG=$PG_HOME/17/bin/pg_config
# Debug builds: they start sooner by more than an optimised program would save.
# shellcheck disable=SC2086
stage "Postgres 17, tools, broker, data" "$SCRIPTS/setup.sh" tools pg 17 $parts
stage "extension into that Postgres" cargo pgrx install -p postroom-extension -c "$PG_CONFIG"
stage "demo program" cargo build -p postroom-tests --bin demo
echo
# In the foreground, so that an interrupt reaches the program itself first.
"$CARGO_TARGET_DIR/debug/demo" 9>&-
