#!/usr/bin/env bash
# A Task in a Pod of its own, with input, children and result, and the same from Python.
# Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/pod.yaml" >/dev/null' EXIT

kiln apply -f "$here/pod.yaml"
kiln wait sum-in-pod --timeout 90s

kiln logs sum-in-pod
kiln get task sum-in-pod -o yaml | grep podName
[ "$(kiln result sum-in-pod)" = '{"sum": 5050}' ]
python3 "$here/calls.py"
echo "a Pod and two tasks of its own have added 100 numbers: ok"
