#!/usr/bin/env bash
# Tasks that are HTTP requests. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
python3 "$here/service.py" >"$directory/port" &
service=$!
kiln executor http --allow 127.0.0.1 >"$directory/executor.log" & # as many as you like, on any machine
executor=$!
finish() {
    kiln delete -f "$directory/tasks.yaml" >/dev/null || true
    kill "$service" "$executor" 2>/dev/null || true
    wait "$service" "$executor" 2>/dev/null || true
    rm -rf "$directory"
}
trap finish EXIT

until [ -s "$directory/port" ]; do sleep 0.05; done
sed "s/PORT/$(cat "$directory/port")/" "$here/tasks.yaml" >"$directory/tasks.yaml"

kiln apply -f "$directory/tasks.yaml"
kiln wait texts count --timeout 90s

[ "$(kiln result texts)" = '"to be or not to be"' ]
[ "$(kiln result count)" = 8 ]
kiln logs count | python3 -c '
import json, sys
for entry in json.load(sys.stdin)["log"]["entries"]:
    print(entry["request"]["method"], entry["request"]["url"], entry["response"]["status"])'
echo "a text and its 8 words, by requests: ok"
