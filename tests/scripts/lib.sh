# shellcheck shell=bash disable=SC2034
# Sourced after env.sh: the cache lock, stages with progress, and an end that leaves nothing running.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SCRIPTS=$ROOT/tests/scripts
LOGS=$POSTROOM_CACHE/logs
umask 022

die() { echo "$*" >&2; exit 1; }

# Two runs on one cache would overwrite each other's installed extension; the second one waits.
# A script called by another one finds the lock taken by its caller.
lock_cache() {
    mkdir -p "$POSTROOM_CACHE" "$LOGS" || die "cannot create $POSTROOM_CACHE; set POSTROOM_CACHE to a directory of yours"
    [ "${POSTROOM_LOCKED:-}" != "$POSTROOM_CACHE" ] || return 0
    exec 9>"$POSTROOM_CACHE/lock"
    flock -n 9 || { echo "waiting: another run is using $POSTROOM_CACHE"; flock 9; }
    export POSTROOM_LOCKED=$POSTROOM_CACHE
}

# Everything this run starts inherits POSTROOM_RUN, servers that leave the process group too, and
# puts its files below TMPDIR. So the end can find both without knowing who made them. A script
# called by another one adds its own mark and ends by itself what it started.
# Sticky and world-writable like /tmp, because root's servers run as another user.
begin_run() {
    # /tmp whatever the caller's TMPDIR is: socket paths are limited to 107 bytes.
    [ -n "${POSTROOM_RUN:-}" ] || TMPDIR=/tmp
    export POSTROOM_RUN=${POSTROOM_RUN:+$POSTROOM_RUN/}$$-$RANDOM
    TMPDIR=$(mktemp -d "$TMPDIR/postroom.XXXXXX") && chmod 1777 "$TMPDIR" && export TMPDIR
    trap end_run EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# The processes with this run's mark. This shell is none of them: it set the mark after its start.
run_pids() {
    local files
    files=$(env -u POSTROOM_RUN grep -lszE "^POSTROOM_RUN=$POSTROOM_RUN(/|\$)" /proc/[0-9]*/environ) || true
    files=${files//\/proc\//}
    echo "${files//\/environ/}"
}

end_run() {
    local status=$? pids try
    set +e
    trap '' INT TERM HUP
    [ -z "${STAGE_PID:-}" ] || kill -TERM -- "-$STAGE_PID" 2>/dev/null
    [ ! -t 1 ] || printf '\r\033[K'
    for try in {1..40}; do
        pids=$(run_pids); [ -n "$pids" ] || break
        # INT stops a server cleanly; whoever is still there after two seconds is killed.
        # shellcheck disable=SC2086
        case $try in
            1) kill -INT $pids 2>/dev/null ;;
            20 | 30) kill -KILL $pids 2>/dev/null ;;
        esac
        sleep 0.1
    done
    rm -rf "$TMPDIR"
    exit "$status"
}

plain() { sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\x1b(B//g'; }
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# stage NAME COMMAND...: runs COMMAND with its output in a log. On a terminal one line shows that
# it is alive; closing lines of test runners are always shown; a failure shows the end of the log.
# The command gets its own process group, so that an interrupt reaches it through end_run only.
stage() {
    local name=$1 log start=$SECONDS status=0 last columns
    shift
    log=$LOGS/$(tr -c 'A-Za-z0-9.\n' '-' <<<"$name" | tr -s '-').log
    set -m
    "$@" >"$log" 2>&1 </dev/null 9>&- &
    STAGE_PID=$!
    set +m
    if [ -t 1 ]; then
        columns=$(tput cols 2>/dev/null || echo 80)
        while kill -0 "$STAGE_PID" 2>/dev/null; do
            last=$(tail -c 600 "$log" 2>/dev/null | tr '\r\t' '\n ' | plain | grep -v '^ *$' | tail -n 1) || last=
            last="$(clock $((SECONDS - start)))  $name  ${last}"
            printf '\r\033[K%s' "${last:0:columns-1}"
            sleep 0.3
        done
        printf '\r\033[K'
    else
        echo "....  $name"
    fi
    wait "$STAGE_PID" || status=$?
    STAGE_PID=
    STAGE_SECONDS=$((SECONDS - start))
    summary "$log"
    if [ "$status" = 0 ]; then
        echo "ok    $name  $(clock $STAGE_SECONDS)"
    else
        grep -vE '^ +(Compiling|Checking|Downloaded|Downloading) ' "$log" | tail -n 50 | plain | sed 's/^/      | /' || true
        echo "FAIL  $name  $(clock $STAGE_SECONDS)  whole log: $log"
    fi
    return "$status"
}

summary() { grep -E '^(test result: |[0-9]+ passed, [0-9]+ failed)' "$1" | grep -v '^test result: ok\. 0 passed; 0 failed' || true; }
