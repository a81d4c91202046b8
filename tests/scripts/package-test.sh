#!/bin/bash
# usage: package-test.sh
# The Debian package for Postgres 15, looked at from outside and installed into a clean Debian 12 with
# Debian's own server, where a message is stored, claimed and completed. The clean system is made once
# and kept in the cache. Making it needs root and Debian's debootstrap; without root that part is left out.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
lock_cache
begin_run
name=postgresql-15-postroom
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
passed=0
ok() { passed=$((passed + 1)); echo "ok: $*"; }

"$SCRIPTS/package.sh" 15
deb=$(echo target/package/"${name}_$version"-1_*.deb)
sum=$(sha256sum <"$deb")
"$SCRIPTS/package.sh" 15 >/dev/null
[ "$sum" = "$(sha256sum <"$deb")" ] || die "a second build has other bytes"
ok "the same bytes each time"

listed=$(dpkg-deb -c "$deb")
[ -z "$(awk '$2 != "root/root"' <<<"$listed")" ] || die "not root's: $listed"
diff <(awk '$1 ~ /^-/ { print $1, $6 }' <<<"$listed" | LC_ALL=C sort -k 2) - <<FILES || die "unexpected files"
-rw-r--r-- ./usr/lib/postgresql/15/lib/postroom.so
-rw-r--r-- ./usr/share/doc/$name/changelog.Debian.gz
-rw-r--r-- ./usr/share/doc/$name/changelog.gz
-rw-r--r-- ./usr/share/doc/$name/copyright
$(for script in sql/install/*.sql sql/postroom--*--*.sql "x/postroom--$version.sql"; do
        echo "-rw-r--r-- ./usr/share/postgresql/15/extension/${script##*/}"
    done | LC_ALL=C sort -u)
-rw-r--r-- ./usr/share/postgresql/15/extension/postroom.control
FILES
[ "$(dpkg-deb --ctrl-tarfile "$deb" | tar t | sort | tr '\n' ' ')" = "./ ./control ./md5sums " ] || die "there are scripts of the maintainer in it"
[[ $(dpkg-deb -f "$deb" Depends) =~ ^"postgresql-15, libc6 (>= 2."[0-9]+"), libgcc-s1"$ ]] || die "it depends on something else"
ok "these files, root's, and no script"

dpkg-deb -x "$deb" "$TMPDIR/files"
library=$TMPDIR/files/usr/lib/postgresql/15/lib/postroom.so
for path in "$ROOT" "$POSTROOM_CACHE" "$CARGO_TARGET_DIR" "${CARGO_HOME:-$HOME/.cargo}" "$HOME/"; do
    # A path of one or two words, as of root, would be found in names that have nothing to do with it.
    ! strings -n 6 "$library" | grep -F "$path" || die "the library names $path"
done
[ -z "$(readelf -d "$library" | grep -E 'RPATH|RUNPATH')" ] || die "the library says where to look for others"
ok "no path of this machine in the library"

if [ "$(id -u)" != 0 ]; then
    echo "left out: only root can install into a clean Debian"
    echo "$passed passed, 0 failed"
    exit 0
fi

# The clean system: base, Debian's server, nothing of ours. Appears by a rename.
clean=$POSTROOM_CACHE/debian-12.tar
make_clean() {
    local root=$TMPDIR/clean mirror
    command -v debootstrap >/dev/null ||
        env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq -o DPkg::Lock::Timeout=300 update && apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends debootstrap'
    # Where this machine gets its own packages from.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(RELEASE)' | awk '$2 == "main" && $3 !~ /-/ { print $1; exit }')
    (cd / && debootstrap --variant=minbase bookworm "$root" "$mirror")
    cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
    # No cluster of Debian's and no service: the test makes its own server.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    mkdir -p "$root/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
    inside "$root" root sh -c '
        apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql-15 && apt-get clean'
    # What a server and dpkg never look at.
    rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{locale,man,doc/libllvm*}
    tar cf "$clean.new" -C "$root" --exclude=./proc/* --exclude=./sys/* --exclude=./dev/pts/* .
    mv "$clean.new" "$clean"
    rm -rf "$root"
}
# inside ROOT USER COMMAND...
inside() {
    local root=$1 user=$2
    shift 2
    env -i POSTROOM_RUN="$POSTROOM_RUN" PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" runuser -u "$user" -- "$@"
}
[ -e "$clean" ] || stage "a clean Debian 12 with its Postgres 15" make_clean

root=$TMPDIR/debian
mkdir "$root"
tar xpf "$clean" -C "$root"
# Shared memory of the server; an ordinary directory does.
mkdir -p "$root/dev/shm" && chmod 1777 "$root/dev/shm"
cp "$deb" "$root/tmp/"
inside "$root" root dpkg -i "/tmp/${deb##*/}"
[ "$(inside "$root" root dpkg-query -Wf '${Status}' $name)" = "install ok installed" ] || die "it is not installed"
[ -z "$(inside "$root" root dpkg -V $name)" ] || die "files differ from the package"
ok "installed into a clean Debian: $(inside "$root" root dpkg-query -Wf '${Package} ${Version}' postgresql-15)"

inside "$root" postgres sh -ec '
    cd /tmp; bin=/usr/lib/postgresql/15/bin
    $bin/initdb -D data -A trust -E UTF8 -N >initdb.log
    $bin/pg_ctl -D data -s -w -l log -o "-k /tmp -c listen_addresses= -c fsync=off" start'
query() { inside "$root" postgres psql -h /tmp -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
session() {
    query -d "$1" <<'SQL'
SELECT postroom.version();
SELECT count(postroom.send('order.placed', jsonb_build_object('order', n), postroom.stream_id_of('order'))) FROM generate_series(1, 3) AS n;
SELECT postroom.register_instance('package') AS me \gset
SELECT claim_id, array_agg(message_id) AS ids, string_agg(payload->>'order', ' ') AS orders FROM postroom.claim_outbox(:'me') GROUP BY 1 \gset
\echo :orders
SELECT string_agg(outcome, ' ') FROM postroom.complete_outbox(:claim_id, :'ids');
SELECT postroom.deregister_instance(:'me');
SELECT * FROM postroom.verify();
SELECT count(*) FROM postroom.outbox;
SQL
}
expected=$(printf '%s\n' "$version" 3 "1 2 3" "applied applied applied" deregistered 0)
query -d postgres -c 'CREATE DATABASE fresh' -c 'CREATE DATABASE upgraded'
query -d fresh -c 'CREATE EXTENSION postroom'
[ "$(session fresh)" = "$expected" ] || die "the session went otherwise"
ok "created, and a message stored, claimed and completed"
query -d upgraded -c "CREATE EXTENSION postroom VERSION '0.1.0'"
[ "$(session upgraded)" = "$expected" ] || die "the session on the old catalog went otherwise"
query -d upgraded -c 'ALTER EXTENSION postroom UPDATE'
[ "$(session upgraded)" = "$expected" ] || die "the session after the update went otherwise"
ok "a released version created, used and updated"

# The golden tests on a server that is not of ours, and what they leave there.
of_server() { query -d postgres -c 'SELECT datname FROM pg_database ORDER BY 1' -c 'SELECT rolname FROM pg_roles ORDER BY 1' -c 'SELECT * FROM pg_db_role_setting'; }
before=$(of_server)
PGHOST=$root/tmp PGUSER=postgres "$SCRIPTS/installcheck.sh" "$PG_HOME/15/bin/pg_config"
[ "$(of_server)" = "$before" ] || die "make installcheck left something: $(of_server)"
query -d postgres -c 'CREATE DATABASE contrib_regression_postroom'
! PGHOST=$root/tmp PGUSER=postgres "$SCRIPTS/installcheck.sh" "$PG_HOME/15/bin/pg_config" || die "make installcheck used a database that it had not made"
query -d postgres -c 'DROP DATABASE contrib_regression_postroom'
ok "make installcheck passed there and left nothing"

inside "$root" postgres /usr/lib/postgresql/15/bin/pg_ctl -D /tmp/data -s -m fast stop
inside "$root" root dpkg -P $name >/dev/null
[ -z "$(find "$root/usr" "$root/etc" "$root/var" -name '*postroom*')" ] || die "something is left after the removal"
ok "removed without a trace"
echo "$passed passed, 0 failed"
