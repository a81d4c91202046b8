#!/bin/bash
# usage: test.sh [MAJOR...]
# The whole suite, one Postgres version after another. A failing stage does not stop the others;
# the table at the end says what to look at.
set -uo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit 1
majors=${*:-$PG_MAJORS}

"$SCRIPTS/setup.sh" check || exit 1
lock_cache
begin_run

table=() bad=
record() { # record NAME VERSION COMMAND...
    local name=$1 version=$2 result=ok
    shift 2
    stage "$name${version:+ pg$version}" "$@" || { result=FAIL; bad=yes; }
    table+=("$(printf '%-20s %-8s %-5s %5d' "$name" "${version:--}" "$result" "$STAGE_SECONDS")")
    [ "$result" = ok ]
}
report() {
    printf '\n%-20s %-8s %-5s %5s\n' stage version result seconds
    printf '%s\n' "${table[@]}"
}

pg_config() { echo "$PG_HOME/$1/bin/pg_config"; }

# Always the same packages together: another selection means other features of shared dependencies,
# and those would be compiled once more.
crates=(-p postroom -p postroom-tests)
units() { cargo test "${crates[@]}" --lib; }
document() { RUSTDOCFLAGS="-D warnings" cargo doc "${crates[@]}" --no-deps; }
lint_crates() { cargo clippy "${crates[@]}" --all-targets -- -D warnings; }
lint_extension() { cargo clippy -p postroom-extension --all-targets --no-default-features --features "pg$1 pg_test" -- -D warnings; }

pg_test() { "$SCRIPTS/as-pg" cargo pgrx test "pg$1" -p postroom-extension; }
# The storms last a minute each on the first version, less on the others. The sizes that are promised are
# measured on the first and the last.
clients() {
    "$SCRIPTS/install-extension.sh" "$1" || return
    local settings=("PG_CONFIG=$(pg_config "$1")")
    [ "$1" != "${majors%% *}" ] || settings+=(POSTROOM_LONG=1)
    [ "$1" != "${majors%% *}" ] && [ "$1" != "${majors##* }" ] || settings+=(POSTROOM_LARGE=1)
    env "${settings[@]}" cargo test "${crates[@]}" --no-fail-fast
}
# Programs of other languages; the extension is where the stage before has put it.
languages() { env "PG_CONFIG=$(pg_config "$1")" "POSTROOM_CLIENTS=$POSTROOM_CACHE/clients" cargo test "${crates[@]}" --test languages -- --ignored; }
# The library of this version under the catalog of the release before: what worked goes on working. The
# view of fences was not there yet.
old_catalog() {
    local version old
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    old=$(printf '%s\n' sql/install/*.sql | grep -vF -- "--$version.sql" | sort -V | tail -n 1 | sed 's/.*--\(.*\)\.sql/\1/')
    env "PG_CONFIG=$(pg_config "$1")" "POSTROOM_CATALOG=$old" cargo test "${crates[@]}" --no-fail-fast \
        --test batch --test claim --test event --test inbox --test instance --test lane --test order --test outbox --test position --test retry \
        -- --skip fence::
}
# Each version has the extension by then.
restores() { env "POSTROOM_VERSIONS=$majors" "PG_CONFIG=$(pg_config "${majors%% *}")" cargo test "${crates[@]}" --test restore versions; }

# shellcheck disable=SC2086
record setup "" "$SCRIPTS/setup.sh" tools pg $majors nats pooler flights clients || { report; exit 1; }
first=yes
for v in $majors; do
    if [ -n "$first" ]; then
        first=
        record format "" cargo fmt --all --check
        record guards "" "$SCRIPTS/mutants.sh" check
        record "unit tests" "" units
        record documents "" document
        record "lints, extension" "$v" lint_extension "$v"
        record "lints, crates" "" lint_crates
        record "install script" "$v" "$SCRIPTS/freeze.sh" check "$v"
    fi
    record "inside the server" "$v" pg_test "$v"
    record golden "$v" "$SCRIPTS/regress.sh" "$v" regress
    record interleavings "$v" "$SCRIPTS/regress.sh" "$v" isolation
    record clients "$v" clients "$v"
    if [ "$v" = 15 ]; then
        record "pg_cron" "$v" "$SCRIPTS/cron.sh"
    fi
    if [ "$v" = "${majors%% *}" ]; then
        record "other languages" "$v" languages "$v"
        record "old catalog" "$v" old_catalog "$v"
    fi
done
[ "${majors%% *}" = "$majors" ] || record "dump and restore" "" restores
case " $majors " in *" 15 "*) record package 15 "$SCRIPTS/package-test.sh" ;; esac
report
[ -z "$bad" ]
