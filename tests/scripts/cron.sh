#!/bin/bash
# usage: cron.sh
# The line of docs/operators.md for pg_cron, run by Debian's pg_cron on Debian's Postgres 15: a private
# copy of both, started below TMPDIR; nothing of the system is changed. Takes up to a minute and a bit,
# for this pg_cron knows no seconds.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
lock_cache
begin_run
cd "$TMPDIR"

# Whatever is not installed is unpacked; that needs no root.
tree=$TMPDIR/debian
mkdir -p "$tree"
missing=
for package in postgresql-15 postgresql-client-15 postgresql-15-cron; do
    if dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$'; then
        dpkg -L "$package" | grep -E '^/usr/(lib|share)/postgresql/15/' | while read -r file; do [ -d "$file" ] || echo "$file"; done |
            tar -c --absolute-names -T - 2>/dev/null | tar -x --transform 's,^/,,' -C "$tree"
    else
        missing="$missing $package"
    fi
done
# shellcheck disable=SC2086
if [ -n "$missing" ]; then
    apt-get -qq download $missing >apt.log 2>&1 || { cat apt.log; die "run this first:  sudo apt-get install -y --no-install-recommends$missing"; }
    for deb in ./*.deb; do dpkg -x "$deb" "$tree"; done
fi
bin=$tree/usr/lib/postgresql/15/bin
"$bin/postgres" --version || die "run this first:  sudo apt-get install -y --no-install-recommends postgresql-15"

# Built for the Postgres 15 of the cache, which has the same binary interface.
"$SCRIPTS/install-extension.sh" 15 >install.log 2>&1 || { cat install.log; exit 1; }
cp "$("$PG_HOME/15/bin/pg_config" --pkglibdir)/postroom.so" "$tree/usr/lib/postgresql/15/lib/"
cp "$("$PG_HOME/15/bin/pg_config" --sharedir)/extension/postroom"* "$tree/usr/share/postgresql/15/extension/"

server=$(mktemp -d "$TMPDIR/c.XXXX"); as=()
if [ "$(id -u)" = 0 ]; then chown "$POSTROOM_OS_USER" "$server"; as=(runuser -u "$POSTROOM_OS_USER" --); fi
chmod 755 "$server" "$TMPDIR"
("${as[@]}" "$bin/initdb" -D "$server/data" -U postgres -A trust -E UTF8 --locale=C -N) >init.log 2>&1 || { cat init.log; exit 1; }
"${as[@]}" "$bin/pg_ctl" -D "$server/data" -s -w -l "$server/log" -o "-k $server -c listen_addresses= -c fsync=off \
    -c shared_preload_libraries=pg_cron -c cron.database_name=postgres -c cron.use_background_workers=on" start 9>&- ||
    { cat "$server/log"; exit 1; }
sql() { "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$server" -U postgres -d postgres -c "$1"; }

sql "CREATE EXTENSION pg_cron; CREATE EXTENSION postroom"
sql "SELECT version(), extname, extversion FROM pg_extension WHERE extname IN ('pg_cron', 'postroom')"
sql "INSERT INTO postroom.inbox_seen (consumer_id, message_id, seen_at)
     VALUES ('billing', postroom.new_id(), now() - interval '31 days'), ('billing', postroom.new_id(), now())"
line=$(grep -E "^SELECT cron\.schedule\('postroom-upkeep'" "$ROOT/docs/operators.md") || die "docs/operators.md has no line for pg_cron"
sql "$line"
for _ in {1..150}; do
    ran=$(sql "SELECT count(*) FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')")
    [ "$ran" = 0 ] || break
    sleep 0.5
done
sql "SELECT status, return_message FROM cron.job_run_details"
[ "$(sql "SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'")" = 0 ] || { tail -n 20 "$server/log"; die "the job failed"; }
[ "$(sql "SELECT count(*) FROM postroom.inbox_seen")" = 1 ] || die "upkeep did not forget what is old"
[ "$(sql "SELECT state FROM postroom.health() WHERE probe = 'upkeep_seconds'")" = ok ] || die "no upkeep is known"
echo "1 passed, 0 failed"
