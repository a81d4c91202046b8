#!/bin/bash
# usage: clean.sh
# Removes what these scripts made, by name. Cargo's own cache and system packages stay.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/lib.sh"
[ -d "$POSTROOM_CACHE" ] || { echo "nothing to remove: there is no $POSTROOM_CACHE"; exit 0; }
lock_cache
cd "$POSTROOM_CACHE"
shopt -s nullglob
found=(pg tools pgrx target data logs clients debian-12.tar package-*)
echo "removing from $POSTROOM_CACHE:" "${found[@]}" "($(du -sh . | cut -f1))"
rm -rf "${found[@]}" lock
cd /
rmdir "$POSTROOM_CACHE" 2>/dev/null || echo "left as it is: $POSTROOM_CACHE, it holds other files"
