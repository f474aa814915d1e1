#!/usr/bin/env bash
# Tasks that are HTTP requests. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
python3 "$here/service.py" >"$folder/port" &
service=$!
kiln executor http --allow 127.0.0.1 >"$folder/executor.log" & # as many as you like, on any machine
executor=$!
finish() {
    kiln delete -f "$folder/tasks.yaml" >/dev/null || true
    kill "$service" "$executor" 2>/dev/null || true
    wait "$service" "$executor" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT

until [ -s "$folder/port" ]; do sleep 0.05; done
sed "s/PORT/$(cat "$folder/port")/" "$here/tasks.yaml" >"$folder/tasks.yaml"

kiln apply -f "$folder/tasks.yaml"
kiln wait texts count --timeout 90s

[ "$(kiln result texts)" = '"to be or not to be"' ]
[ "$(kiln result count)" = 8 ]
kiln logs count | python3 -c '
import json, sys
for entry in json.load(sys.stdin)["log"]["entries"]:
    print(entry["request"]["method"], entry["request"]["url"], entry["response"]["status"])'
echo "a text and its 8 words, by requests: ok"
