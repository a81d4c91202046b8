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
# puts its files below TMPDIR. So the end can find both without knowing who made them.
# Sticky and world-writable like /tmp, because root's servers run as another user.
begin_run() {
    if [ -n "${POSTROOM_RUN:-}" ]; then return 0; fi
    export POSTROOM_RUN=$$.$RANDOM
    TMPDIR=$(mktemp -d /tmp/postroom.XXXXXX) && chmod 1777 "$TMPDIR" && export TMPDIR
    trap end_run EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

end_run() {
    local status=$? pids
    trap '' INT TERM HUP
    [ -z "${STAGE_PID:-}" ] || kill -TERM -- "-$STAGE_PID" 2>/dev/null
    [ ! -t 1 ] || printf '\r\033[K'
    for try in 1 2 3 4 5 6 7 8; do
        pids=$(run_pids); [ -n "$pids" ] || break
        # A server asked once with INT stops cleanly; whoever is still there after a second is killed.
        # shellcheck disable=SC2086
        if [ "$try" -lt 3 ]; then kill -INT $pids 2>/dev/null; else kill -KILL $pids 2>/dev/null; fi
        sleep 0.4
    done
    rm -rf "$TMPDIR"
    exit "$status"
}

# Processes that carry this run's mark, this shell and its own subshells excepted.
run_pids() {
    local p
    for p in /proc/[0-9]*; do
        p=${p#/proc/}
        [ "$p" != "$$" ] && [ "$p" != "$BASHPID" ] || continue
        tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "POSTROOM_RUN=$POSTROOM_RUN" 2>/dev/null || continue
        [ "$(ps -o ppid= -p "$p" 2>/dev/null | tr -d ' ')" = "$BASHPID" ] || echo "$p"
    done
}

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
            last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^ *$' | tail -n 1 | tr -d '\033\t')
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
        tail -n 50 "$log" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\x1b(B//g; s/^/      | /'
        echo "FAIL  $name  $(clock $STAGE_SECONDS)  whole log: $log"
    fi
    return "$status"
}

summary() { grep -E '^(test result: |[0-9]+ passed, [0-9]+ failed)' "$1" | grep -v '^test result: ok\. 0 passed; 0 failed' || true; }
