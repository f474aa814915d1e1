#!/usr/bin/env bash
# Jobs that wait for other Jobs and Tasks, and a Job with an index for each item that a task returned.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/jobs.yaml" >/dev/null' EXIT

kiln apply -f "$here/jobs.yaml" >/dev/null
jobs=(publish count-words fails not-without-it tidy-up)
kiln wait "${jobs[@]/#/job/}" --for=condition=Finished --timeout 60s >/dev/null

kiln get jobs "${jobs[@]}" -o wide
kiln why job/not-without-it
kiln get jobs "${jobs[@]}" -o json | python3 "$here/check_dependencies.py"
echo "one after the other, and an index for each item of a list: ok"
