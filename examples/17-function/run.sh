#!/usr/bin/env bash
# Tasks that request functions of Knative. Needs a server: `kiln up`; a stand-in is Knative there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
sed "s|HERE|$here|" "$here/services.yaml" >"$directory/services.yaml"
kiln apply -f "$here/crd.yaml"
python "$here/knative.py" >"$directory/knative.log" &
knative=$!
kiln executor http --allow 127.0.0.1 >"$directory/executor.log" &
executor=$!
finish() {
    kiln delete -f "$here/tasks.yaml" -f "$here/crd.yaml" >/dev/null || true
    kill "$knative" "$executor" 2>/dev/null || true
    wait "$knative" "$executor" 2>/dev/null || true
    rm -rf "$directory"
}
trap finish EXIT
until_it_says() { # TEXT COMMAND...: poll for two minutes
    text=$1
    shift
    for _ in $(seq 240); do
        if "$@" | grep -F "$text"; then return; fi
        sleep 0.5
    done
    "$@"
    return 1
}

kiln apply -f "$here/tasks.yaml"
kiln apply -f "$directory/services.yaml" # the Tasks have waited for them
kiln wait greet greet-later --timeout 120s
[ "$(kiln result greet)" = '"hello greet"' ]
[ "$(kiln result greet-later)" = '"hello greet-later, at last"' ]
[ "$(grep -c 'start of greeter' "$directory/knative.log")" = 2 ] # tried, then scaled to zero: a cold start

[ "$(python "$here/call.py")" = "['hello Ada', 'hello Bob']" ]

until_it_says WaitingForResult kiln why greet-much-later
kiln cancel greet-much-later
kiln wait greet-much-later --for state=Killed --timeout 60s
kiln why greet-much-later

until_it_says no-such-program kiln why call-broken # what Knative says of the Service
echo "a function has greeted, at once and later: ok"
