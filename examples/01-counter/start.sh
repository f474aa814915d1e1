#!/bin/sh
# Spawns count-0, the first task of the curl counter. Run it as a task: kiln run -- sh start.sh
set -eu
exec curl --silent --show-error --fail-with-body --unix-socket "$KILN_SOCKET" http://task/tasks \
    --header 'Content-Type: application/json' --data-binary @- <<BODY
{"key": "first", "name": "count-0",
 "spec": {"command": ["sh", "counter.sh"], "env": [{"name": "LIMIT", "value": "${LIMIT:-50}"}]}}
BODY
