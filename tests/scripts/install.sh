#!/bin/bash
# usage: install.sh /path/to/pg_config
# Puts an optimised build into a server of yours. Files are copied and nothing else happens: no
# preload, no restart, no change of settings. In psql: CREATE EXTENSION postroom;
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
pg_config=${1:-}
[ -n "$pg_config" ] || die "say which server: make install PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config"
[ -x "$pg_config" ] || die "$pg_config is not there; on Debian it comes with postgresql-client-NN"
major=$("$pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
case $major in 15 | 16 | 17 | 18) ;; *) die "$("$pg_config" --version) is not supported; 15, 16, 17 and 18 are" ;; esac
if [ ! -e "$("$pg_config" --includedir-server)/postgres.h" ]; then
    # The headers of exactly the installed version: a newer one would upgrade and restart the server.
    installed=$(dpkg-query -Wf '${Version}' "postgresql-$major" 2>/dev/null) || installed=
    die "the server's headers are missing; run this first, it leaves the server as it is:  sudo apt-get install -y --no-install-recommends postgresql-server-dev-$major${installed:+=$installed}"
fi

"$SCRIPTS/setup.sh" check
lock_cache
begin_run
stage "tools" "$SCRIPTS/setup.sh" tools
stage "optimised build for PostgreSQL $major" cargo pgrx package -p postroom-extension -c "$pg_config" --out-dir "$TMPDIR/package"

# Each file replaces the old one by a new inode: sessions that have the library loaded keep theirs.
copy=()
while read -r file; do
    copy+=("$file ${file#"$TMPDIR/package"}")
done < <(find "$TMPDIR/package" -type f)
for pair in "${copy[@]}"; do
    to=${pair#* }
    if [ ! -w "$(dirname "$to")" ]; then
        keep=$POSTROOM_CACHE/package-$major
        rm -rf "$keep"; mv "$TMPDIR/package" "$keep"
        die "built, but $(dirname "$to") is not writable for you; run:  sudo cp -r --remove-destination $keep/. /"
    fi
done
for pair in "${copy[@]}"; do
    case $pair in *.so) mode=755 ;; *) mode=644 ;; esac
    install -m "$mode" "${pair% *}" "${pair#* }"
    echo "      ${pair#* }"
done
echo "ready: CREATE EXTENSION postroom;"
