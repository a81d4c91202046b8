#!/bin/bash
# usage: installcheck.sh /path/to/pg_config
# Golden tests and interleavings against your own running server, into which `make install` or a package
# has put the extension. PGHOST, PGPORT and PGUSER (a superuser) say where it is. Works in two databases
# of its own, which it makes and drops; nothing else of the server is touched.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
pg_config=${1:-}
[ -n "$pg_config" ] || die "say which server: make installcheck PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config"
[ -x "$pg_config" ] || die "$pg_config is not there; on Debian it comes with postgresql-client-NN"
bin=$("$pg_config" --bindir)
programs=$(dirname "$("$pg_config" --pgxs)")/../test
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
databases=(contrib_regression_postroom isolation_regression_postroom)

ask() { "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "$@"; }
here="where PGHOST=${PGHOST:-}, PGPORT=${PGPORT:-} and PGUSER=${PGUSER:-} lead"
running=$(ask -c 'SHOW server_version_num') || die "no server $here"
[ "$((running / 10000))" = "$("$bin/psql" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')" ] ||
    die "the server is $((running / 10000)), $pg_config belongs to another version"
offered=$(ask -c "SELECT default_version FROM pg_available_extensions WHERE name = 'postroom'")
[ "$offered" = "$version" ] || die "the server offers postroom ${offered:-not at all}, not $version: run make install PG_CONFIG=$pg_config first"
[ -x "$programs/regress/pg_regress" ] || die "$programs/regress/pg_regress is not there; on Debian it comes with postgresql-server-dev-NN"
for database in "${databases[@]}"; do
    [ -z "$(ask -c "SELECT 1 FROM pg_database WHERE datname = '$database'")" ] ||
        die "the database $database is there already; drop it if it is of no use"
done

begin_run
leave() {
    local status=$?
    for database in "${databases[@]}"; do ask -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" 2>/dev/null || true; done
    (exit "$status")
    end_run
}
trap leave EXIT

# What the expectations rest on, whatever the server's settings are.
export PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=warning"
bad='' passed=0 failed=0
check() { # check DATABASE DIRECTORY SUFFIX PROGRAM
    local out=$TMPDIR/$2 tests
    mkdir -p "$out"
    tests=$(cd "pg_regress/$2" && ls -- *."$3" | sed "s/\.$3\$//")
    # shellcheck disable=SC2086
    "$programs/$4" --bindir="$bin" --dbname="$1" --load-extension=postroom --encoding=UTF8 --no-locale \
        --inputdir=pg_regress --outputdir="$out" $tests 2>&1 | tee "$out/log" || bad=yes
    [ ! -s "$out/regression.diffs" ] || cat "$out/regression.diffs"
    passed=$((passed + $(grep -cE '^(ok [0-9]|test .*\.\.\. +ok )' "$out/log" || true)))
    failed=$((failed + $(grep -cE '^(not ok [0-9]|test .*\.\.\. +FAILED)' "$out/log" || true)))
}
check "${databases[0]}" sql sql regress/pg_regress
check "${databases[1]}" specs spec isolation/pg_isolation_regress
echo "$passed passed, $failed failed"
[ -z "$bad" ]
