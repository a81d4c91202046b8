#!/bin/bash
# usage: [ONLY=name,name] mutants.sh [MAJOR | check]
# Takes every guard of docs/guards.md out of a copy of the tree, one at a time, and demands that its
# tests fail. A mutant is a diff in tests/mutants with a head: "Guard:", the line of the document, and
# "Test:" with binary and test, once or more often. A mutant that no longer applies or compiles fails too.
# "check" only sees that document, tests and mutants name each other and that every diff still applies.
# Works on copies of tree, build output and Postgres below TMPDIR; several runs do not disturb each other.
set -uo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit 1
major=${1:-17}
only=${ONLY:-}

head_of() { sed -n "/^--- /q; s/^$2: //p" "tests/mutants/$1.diff"; }
is_asked_for() { [ -z "$only" ] || case ",$only," in *",$1,"*) ;; *) false ;; esac; }

# is_there BINARY TEST: by the file of its module.
is_there() {
    local module=main
    case $2 in *::*) module=${2%::*} ;; esac
    grep -qs "fn ${2##*::}(" "tests/tests/$1.rs" "tests/tests/$1/${module//:://}.rs"
}

# The document and the files name the same guards, tests and mutants; complaints go to stdout.
compare_with_document() {
    local name guard binary test row
    for name in $(grep -oE '`[a-z0-9_]+` *\|$' docs/guards.md | tr -d '` |'); do
        [ -e "tests/mutants/$name.diff" ] || echo "docs/guards.md names $name, which is not in tests/mutants"
    done
    for name in $names; do
        row=$(grep -E "\`$name\` *\|\$" docs/guards.md) || { echo "docs/guards.md does not name $name"; continue; }
        guard=$(head_of "$name" Guard)
        [ "${row#"| $guard | "}" != "$row" ] || echo "$name: the document has another guard: $row"
        [ -n "$(head_of "$name" Test)" ] || echo "$name names no test"
        while read -r binary test; do
            case $row in *"\`${test##*::}\`"*) ;; *) echo "$name: the document has another test than $test" ;; esac
            is_there "$binary" "$test" || echo "$name: there is no test $binary $test"
        done < <(head_of "$name" Test)
    done
    grep -E '^\| [^-]' docs/guards.md | grep -vE '(`[a-z0-9_]+`|mutant) *\|$' | sed 's/^/no mutant: /'
}

names=$(cd tests/mutants && ls -- *.diff | sed 's/\.diff$//')
complaints=$(compare_with_document)
if [ "$major" = check ]; then
    for name in $names; do
        git apply --check "tests/mutants/$name.diff" 2>/dev/null || complaints+="${complaints:+$'\n'}$name no longer applies"
    done
    [ -z "$complaints" ] || { echo "$complaints"; exit 1; }
    exit 0
fi
[ -z "$complaints" ] || { echo "$complaints"; exit 1; }
for name in ${only//,/ }; do [ -e "tests/mutants/$name.diff" ] || die "tests/mutants/$name.diff is not there"; done

"$SCRIPTS/setup.sh" check || exit 1
"$SCRIPTS/setup.sh" tools pg "$major" nats pooler || exit 1
begin_run
tree=$TMPDIR/tree pg=$TMPDIR/pg built=$PG_HOME/$major
export CARGO_TARGET_DIR=$TMPDIR/target PG_CONFIG=$pg/bin/pg_config GIT_CEILING_DIRECTORIES=$TMPDIR

# Dependencies come built; what is ours is built anew, for its marks of time say nothing about a copy.
copy() {
    local cache=$POSTROOM_CACHE/target
    mkdir -p "$tree" "$TMPDIR/target" &&
        git ls-files -coz --exclude-standard | tar -c --null -T - --ignore-failed-read | tar -x -C "$tree" &&
        cp -a "$built" "$pg" &&
        if [ -e "$cache/debug" ]; then
            tar -c -C "$cache" --exclude=incremental --exclude='postroom-pg*' --exclude='.fingerprint/postroom*' \
                --exclude='deps/*-????????????????' debug | tar -x -C "$TMPDIR/target"
        fi
}

# build BINARY...: the extension of the copied tree into the copied Postgres, and these tests.
build() {
    local tests=("${@/#/--test=}")
    rm -rf "$TMPDIR/package"
    cargo pgrx package --debug -p postroom-extension -c "$built/bin/pg_config" --out-dir "$TMPDIR/package" &&
        cp -r "$TMPDIR/package$built/." "$pg/" &&
        cp -n sql/install/*.sql "$("$pg/bin/pg_config" --sharedir)/extension/" &&
        cargo test -p postroom -p postroom-tests "${tests[@]}" --no-run
}

run_tests() { # run_tests BINARY FILTER...
    local binary=$1
    shift
    timeout 600 cargo test -p postroom -p postroom-tests --test "$binary" -- "$@" </dev/null
}

# All tests that mutants name, on the code as it is.
run_unmutated() {
    local binary binaries filters filter log=$TMPDIR/green status=0
    cd "$tree" || return
    for name in $names; do ! is_asked_for "$name" || head_of "$name" Test; done | sort -u >"$TMPDIR/tests"
    mapfile -t binaries < <(cut -d ' ' -f 1 "$TMPDIR/tests" | sort -u)
    build "${binaries[@]}" || return
    for binary in "${binaries[@]}"; do
        filters=$(sed -n "s/^$binary //p" "$TMPDIR/tests")
        # shellcheck disable=SC2086
        run_tests "$binary" $filters >"$log" 2>&1 || status=1
        cat "$log"
        for filter in $filters; do
            grep -qE "^test $filter( - .*)? \.\.\. ok" "$log" || { echo "$binary $filter is not green"; status=1; }
        done
    done
    return $status
}

note() { echo "$name $1" >>"$TMPDIR/verdicts"; echo "$name: $1"; [ "$1" = killed ]; }

# One mutant, from the copied tree to a verdict.
run_mutant() {
    local name=$1 patch=tests/mutants/$1.diff binary filter verdict=killed
    cd "$tree" || return
    git apply --whitespace=nowarn "$patch" || { note "no longer applies"; return; }
    # shellcheck disable=SC2046
    if build $(head_of "$name" Test | cut -d ' ' -f 1 | sort -u); then
        while read -r binary filter; do
            run_tests "$binary" "$filter" && verdict=SURVIVED
        done < <(head_of "$name" Test)
    else
        verdict="does not compile"
    fi
    git apply --whitespace=nowarn -R "$patch" || return
    note "$verdict"
}

# Only while it is copied must nobody build into it.
lock_cache
stage "copies of tree, build output and PostgreSQL $major" copy || exit 1
[ ! -e /dev/fd/9 ] || flock -u 9
unset POSTROOM_LOCKED
stage "tests of all mutants, unmutated" run_unmutated || exit 1
table=() bad= count=0 all=0
for name in $names; do ! is_asked_for "$name" || all=$((all + 1)); done
: >"$TMPDIR/verdicts"
summary() { :; } # a failed test is what is wanted
for name in $names; do
    is_asked_for "$name" || continue
    count=$((count + 1))
    stage "mutant $name, $count of $all" run_mutant "$name" || bad=yes
    table+=("$(printf '%-48s %-18s %5d' "$name" "$(sed -n "s/^$name //p" "$TMPDIR/verdicts")" "$STAGE_SECONDS")")
done
printf '\n%-48s %-18s %5s\n' mutant verdict seconds
printf '%s\n' "${table[@]}"
[ -z "$bad" ]
