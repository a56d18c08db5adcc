# Sourced by bash scripts that run a command beside servers of their own.

command=

# run_group COMMAND...: runs a command in a process group of its own and gives its status. In the background, so that a
# signal to the script is acted on at once instead of when the command ends.
run_group() {
    _status=0
    set -m
    "$@" <&0 &
    command=$!
    set +m
    wait "$command" || _status=$?
    command=
    return "$_status"
}

# end_group: ends the command that runs, and all that it started: cargo does not pass a signal on to its tests.
end_group() {
    if [ -n "$command" ] && kill -TERM -- "-$command" 2>/dev/null; then wait "$command" 2>/dev/null || true; fi
}
