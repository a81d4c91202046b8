#!/bin/bash
# usage: debian-server.sh DIR
# Debian's own Postgres 15 with its headers, and PGQ for it, unpacked below DIR: nothing is installed,
# no server of yours is touched, no root is needed. Prints the packages and their versions.
set -euo pipefail
dir=$1
packages="postgresql-15 postgresql-client-15 postgresql-server-dev-15 postgresql-15-pgq3 libpq-dev"
ready=$dir/packages
if [ ! -s "$ready" ]; then
    command -v apt-get >/dev/null || { echo "the benchmark runs on Debian's packages, and there is no apt-get"; exit 1; }
    rm -rf "$dir"; mkdir -p "$dir/debs"
    cd "$dir/debs"
    # shellcheck disable=SC2086
    apt-get download $packages || {
        echo "run this first, then the same command again:  sudo apt-get update"
        exit 1
    }
    for deb in *.deb; do dpkg-deb -x "$deb" "$dir/tree"; done
    lacking=$(ldd "$dir/tree/usr/lib/postgresql/15/bin/postgres" | sed -n 's/^\s*\(\S*\) => not found$/\1/p' | tr '\n' ' ')
    [ -z "$lacking" ] || { echo "Debian's server needs $lacking; they come with:  sudo apt-get install -y --no-install-recommends postgresql-15"; exit 1; }
    for deb in *.deb; do dpkg-deb -W --showformat '${Package} ${Version}\n' "$deb"; done >"$ready.new"
    rm -rf "$dir/debs"
    chmod -R a+rX "$dir"
    mv "$ready.new" "$ready"
fi
cat "$ready"
