#!/bin/bash
# usage: package.sh [MAJOR...]
# A Debian package per Postgres version, in target/package: optimised, without a path of this machine,
# the same bytes each time. Installing one copies files; it runs no script and restarts nothing.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
majors=${*:-$PG_MAJORS}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=$ROOT/target/package
command -v dpkg-deb >/dev/null || die "dpkg-deb is missing; it makes the packages and is part of Debian"

"$SCRIPTS/setup.sh" check
lock_cache
begin_run
stage "tools" "$SCRIPTS/setup.sh" tools

# Source paths stand in the texts of panics. Everything that differs between machines gets a fixed name.
remap="--remap-path-prefix=$CARGO_TARGET_DIR=/target --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
remap="$remap --remap-path-prefix=$(rustc --print sysroot)=/rust --remap-path-prefix=$ROOT=/postroom"
build() { RUSTFLAGS=$remap cargo pgrx package -p postroom-extension -c "$PG_HOME/$1/bin/pg_config" --out-dir "$TMPDIR/built-$1"; }

# The newest symbol version of the C library that the build asks for.
libc() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2; }

epoch=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
maintainer=${DEBFULLNAME:-The postroom authors}" <${DEBEMAIL:-postroom@localhost.localdomain}>"

write_control() { # write_control MAJOR ROOT
    cat <<CONTROL
Package: postgresql-$1-postroom
Version: $version-1
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Section: database
Priority: optional
Installed-Size: $(du -k -s --apparent-size "$2" | cut -f1)
Depends: postgresql-$1, libc6 (>= $(libc "$2/usr/lib/postgresql/$1/lib/postroom.so")), libgcc-s1
Description: outbox, inbox, event store and ordered work for PostgreSQL $1
 A transactional outbox, an inbox that accepts a message once, an event store,
 and leased, partitioned, strictly ordered work, as a PostgreSQL extension.
 Nothing has to be preloaded: CREATE EXTENSION postroom is enough.
CONTROL
}

write_copyright() {
    cat <<'COPYRIGHT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: postroom

Files: *
Copyright: 2026 The postroom authors
License: MIT or Apache-2.0

License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.

License: MIT
COPYRIGHT
    sed -e 's/^$/./' -e 's/^/ /' LICENSE-MIT
}

write_changelog() {
    printf 'postgresql-%s-postroom (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$1" "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$epoch")"
}

assemble() { # assemble MAJOR: from what was built to a package
    local major=$1 name=postgresql-$1-postroom root=$TMPDIR/root-$1 doc lib share
    lib=$root/usr/lib/postgresql/$major/lib share=$root/usr/share/postgresql/$major/extension doc=$root/usr/share/doc/$name
    install -d -m 755 "$lib" "$share" "$doc" "$root/DEBIAN"
    find "$TMPDIR/built-$major" -name postroom.so -exec install -m 644 {} "$lib/" \;
    find "$TMPDIR/built-$major" -name 'postroom*.sql' -exec install -m 644 {} "$share/" \;
    find "$TMPDIR/built-$major" -name postroom.control -exec install -m 644 {} "$share/" \;
    # A dump, or a cluster that is upgraded, may name a version that was released before.
    for script in sql/install/*.sql; do
        [ -e "$share/${script##*/}" ] || install -m 644 "$script" "$share/"
    done
    strip --strip-unneeded "$lib/postroom.so"
    write_copyright >"$doc/copyright"
    write_changelog "$major" | gzip -9n >"$doc/changelog.Debian.gz"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    write_control "$major" "$root" >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    chmod 644 "$doc"/* "$root"/DEBIAN/*
    mkdir -p "$out"
    SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${name}_$version-1_$(dpkg --print-architecture).deb"
}

for major in $majors; do
    "$PG_HOME/$major/bin/pg_config" --version >/dev/null || die "PostgreSQL $major is not in the cache yet: run make setup"
    stage "optimised build for PostgreSQL $major" build "$major"
    assemble "$major"
done
