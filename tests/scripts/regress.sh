#!/bin/bash
# usage: regress.sh MAJOR [regress|isolation|accept]...
# Golden tests (pg_regress/sql) and interleavings of two sessions (pg_regress/specs) against a
# throw-away server with the extension freshly installed. "accept" makes the results the expectation.
# The database has the extension already, unless sql/setup.sql exists and creates it.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
major=$1; shift
[ $# -gt 0 ] || set -- regress isolation
lock_cache
begin_run

pg=$PG_HOME/$major
cd "$ROOT"
[ -x "$pg/bin/pg_config" ] || die "PostgreSQL $major is not in the cache yet: run make setup"
log=$LOGS/install-$major.log
"$SCRIPTS/install-extension.sh" "$major" >"$log" 2>&1 9>&- || { cat "$log"; exit 1; }

# Server programs run as an ordinary user; clients and cargo do not care.
server=$(mktemp -d "$TMPDIR/r.XXXX"); as=()
if [ "$(id -u)" = 0 ]; then chown "$POSTROOM_OS_USER" "$server"; as=(runuser -u "$POSTROOM_OS_USER" --); fi
chmod 755 "$server"
(cd / && "${as[@]}" "$pg/bin/initdb" -D "$server/data" -U postgres -A trust -E UTF8 --locale=C -N >"$server.initdb" 2>&1) || { cat "$server.initdb"; exit 1; }
# Unix socket only: the directory tells servers apart, so no free port has to be found.
(cd / && "${as[@]}" "$pg/bin/pg_ctl" -D "$server/data" -s -w -l "$server/log" -o "-k $server -c listen_addresses= -c fsync=off -c client_min_messages=warning -c max_prepared_transactions=10" start 9>&-) ||
    { cat "$server/log"; exit 1; }

names() { (cd pg_regress/"$1" 2>/dev/null && ls -- *."$2" 2>/dev/null | sed "s/\.$2\$//") || true; }

# run KIND DIRECTORY SUFFIX PROGRAM: the runner's own words, then one line that counts.
run() {
    local kind=$1 dir=$2 suffix=$3 program=$4 tests ready='' missing=0 load=--load-extension=postroom out log passed failed name
    tests=$(names "$dir" "$suffix" | sed 's/^setup$/0 &/' | sort | sed 's/^0 //')
    [ -n "$tests" ] || { echo "no $kind tests"; return 0; }
    [ ! -e "pg_regress/$dir/setup.$suffix" ] || load=
    # The programs stop at a test without an expectation, so it is counted here.
    for name in $tests; do
        if [ -e "pg_regress/expected/$name.out" ]; then ready="$ready $name"
        elif [ -n "$accept" ]; then : >"pg_regress/expected/$name.out"; ready="$ready $name"
        else echo "pg_regress/$dir/$name.$suffix has no pg_regress/expected/$name.out"; missing=$((missing + 1)); fi
    done
    out=$LOGS/$kind-$major; rm -rf "$out"; mkdir -p "$out"
    log=$out/output
    : >"$log"
    # shellcheck disable=SC2086
    [ -z "$ready" ] || "$pg/lib/pgxs/src/test/$program" --host="$server" --user=postgres --dbname="$kind" $load \
        --inputdir=pg_regress --outputdir="$out" $ready 2>&1 | tee "$log" || bad=1
    # Up to 15 "test NAME ... ok", from 16 on TAP.
    passed=$(grep -cE '^(ok [0-9]|test .*\.\.\. +ok )' "$log" || true)
    failed=$(grep -cE '^(not ok [0-9]|test .*\.\.\. +FAILED)' "$log" || true)
    if [ -n "$accept" ]; then
        for name in $tests; do
            if ! cmp -s "$out/results/$name.out" "pg_regress/expected/$name.out"; then
                cp "$out/results/$name.out" "pg_regress/expected/$name.out"
                echo "accepted: pg_regress/expected/$name.out"
            fi
        done
        return 0
    fi
    [ ! -s "$out/regression.diffs" ] || cat "$out/regression.diffs"
    failed=$((failed + missing))
    [ $((passed + failed)) -gt 0 ] || failed=1
    [ "$failed" = 0 ] || bad=1
    echo "$passed passed, $failed failed"
}

accept='' bad=''
case " $* " in *" accept "*) accept=yes; mkdir -p pg_regress/expected; set -- regress isolation ;; esac
for kind in "$@"; do
    case $kind in
        regress) run regress sql sql regress/pg_regress ;;
        isolation) run isolation specs spec isolation/pg_isolation_regress ;;
        *) die "unknown kind of test: $kind" ;;
    esac
done

# An expectation that no test makes is dead weight and hides a lost test. NAME_1.out is a variant.
for name in $(names expected out); do
    base=${name%_[0-9]}
    if ! compgen -G "pg_regress/s*/$name.s*" >/dev/null && ! compgen -G "pg_regress/s*/$base.s*" >/dev/null; then
        echo "pg_regress/expected/$name.out belongs to no test"; bad=1
    fi
done
[ -n "$accept" ] || [ -z "$bad" ]
