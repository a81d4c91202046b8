#!/bin/bash
# usage: freeze.sh write|check [MAJOR]
# sql/install/postroom--VERSION.sql is what CREATE EXTENSION runs for a released version. It is
# generated, and kept so that a change of the catalog cannot slip into a release unseen.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
frozen=sql/install/postroom--$version.sql
# Before its release a version's catalog is held by the test that compares it with an upgraded one.
if [ "$1" = check ] && [ ! -e "$frozen" ]; then echo "$version is not frozen yet"; exit 0; fi
lock_cache
begin_run
cargo pgrx schema "pg${2:-17}" -p postroom-extension -o "$TMPDIR/schema.sql"
# Where an item stands in the source, and how the linker called it, is no part of the catalog.
sed -e '/^ *-- .*\.rs:[0-9]*$/d' "$TMPDIR/schema.sql" >"$TMPDIR/script.sql"
! grep -n "$ROOT" "$TMPDIR/script.sql" || die "the install script names a path of this machine"
case $1 in
    write) mkdir -p sql/install; cp "$TMPDIR/script.sql" "$frozen"; echo "wrote $frozen" ;;
    # The generator orders unrelated items as it likes, so the same lines in another order are no change.
    check) cmp -s <(sort "$frozen") <(sort "$TMPDIR/script.sql") || {
            diff -u "$frozen" "$TMPDIR/script.sql" || true
            die "the install script changed: see the difference; \`make freeze\` accepts it before the release"
        } ;;
    *) die "usage: freeze.sh write|check [MAJOR]" ;;
esac
