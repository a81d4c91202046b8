#!/bin/bash
# usage: install-extension.sh MAJOR
# The extension as it stands, into a Postgres of the cache; and the scripts of released versions, so
# that tests can create one of those and upgrade it.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$(dirname "$0")/../.."
pg_config=$PG_HOME/$1/bin/pg_config
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
cargo pgrx install -p postroom-extension -c "$pg_config"
for script in sql/install/*.sql; do
    # This version's own script was generated just now.
    [ "$script" = "sql/install/postroom--$version.sql" ] || cp "$script" "$("$pg_config" --sharedir)/extension/"
done
