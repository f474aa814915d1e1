# For the demos: a server of their own in a scratch directory on free ports, and nothing left behind.
# shellcheck shell=bash
#
#     . ../server.sh
#     serve [OPTION…]    starts `kiln up`, waits until it is ready; logs go to $log
#     say COMMAND…       shows a command, and runs it
#
# Sets KUBECONFIG, and green and plain, which are empty unless output is a terminal.

data=$(mktemp -d "${TMPDIR:-/tmp}/kiln-demo.XXXXXX")
log=$data/server.log
export KUBECONFIG="$data/kubeconfig"
server=

finish() {
    code=$?
    trap - EXIT
    if [ "$code" -ne 0 ]; then
        echo "--- the server's last words ($log):" >&2
        tail -n 20 "$log" >&2 || true
    fi
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null && wait "$server" || true
    fi
    rm -rf "$data"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

bold= green= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' green=$'\033[32m' plain=$'\033[0m'
fi
show() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
say() { show "$@"; "$@"; }

serve() {
    show kiln up "$@" --port 0 --data "$data" '&'
    kiln up "$@" --port 0 --data "$data" >"$log" 2>&1 &
    server=$!
    kiln status --wait --timeout 30s
}
