#!/usr/bin/env bash
# The whole demo, by itself: a server of its own in a scratch folder on free ports, the counter, the
# check. Ends with the check's exit code and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")"

data=$(mktemp -d "${TMPDIR:-/tmp}/kiln-demo.XXXXXX")
export KUBECONFIG="$data/kubeconfig"
server=
finish() {
    code=$?
    trap - EXIT
    if [ "$code" -ne 0 ]; then
        echo "--- the server's last words ($data/server.log):" >&2
        tail -n 20 "$data/server.log" >&2 || true
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
if [ -t 1 ]; then bold=$'\033[1m' green=$'\033[32m' plain=$'\033[0m'; fi
show() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
say() { show "$@"; "$@"; }

show kiln up --port 0 --data "$data" '&'
kiln up --port 0 --data "$data" >"$data/server.log" 2>&1 &
server=$!
kiln status --wait --timeout 30s

say kiln apply -f cluster.yaml
say kiln wait taskcluster/counter --for condition=Available --timeout 30s
say kiln apply -f start.yaml
say python3 verify.py
say kiln status

if ! command -v curl >/dev/null; then
    printf '\n%sThe counter reached its limit.%s Install curl to see it done with nothing else.\n' \
        "$green" "$plain"
    exit 0
fi
printf '\nThe same with nothing but curl: no object is made, the children live in the journal.\n'
say kiln run --cluster counter --name curl-counter -- sh start.sh
say python3 verify.py --spawned
printf '\n%sBoth counters reached their limit.%s\n' "$green" "$plain"
