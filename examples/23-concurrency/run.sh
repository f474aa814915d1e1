#!/usr/bin/env bash
# Concurrency: the four policies of JobConfigs, a queue that is full, and locks. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/jobs.yaml" -f "$here/configs.yaml" >/dev/null' EXIT

kiln apply -f "$here/configs.yaml" -f "$here/jobs.yaml" >/dev/null
over=(at-once-{1,2} alone-2 in-turn-{1,2,3,4} newest-{1,2} write read-{1,2})
kiln wait "${over[@]/#/job/}" --for=condition=Finished --timeout 60s >/dev/null

kiln get jobs "${over[@]}" -o wide
kiln get jobconfig alone # alone-1 still runs
kiln get jobs "${over[@]}" -o json | python3 "$here/check_concurrency.py"
echo "at once, alone, in turn, the newest, and locked out: ok"
