#!/usr/bin/env bash
# The whole demo, by itself: a server of its own, the counter, the check. Ends with the check's exit
# code and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")"
. ../server.sh

serve
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
