#!/usr/bin/env bash
# Retries by exit code, time limits, a kill, hooks and a finalizer. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/jobs.yaml" >/dev/null' EXIT

kiln apply -f "$here/jobs.yaml" >/dev/null
jobs=(busy-at-first hopeless too-slow far-too-slow unwanted looked-after)
kiln wait "${jobs[@]/#/job/}" --for=condition=Finished --timeout 60s >/dev/null

kiln get jobs "${jobs[@]}" -o wide
kiln logs busy-at-first-0
until kiln logs looked-after-hook-0-succeeded 2>/dev/null | grep "looked-after is"; do sleep 0.2; done
kiln get jobs "${jobs[@]}" -o json | python3 "$here/check_retries.py"
echo "retried, failed, timed out, killed and handled by a hook: ok"
