#!/usr/bin/env bash
# Two Tasks of different images in the Pod of one warm worker. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trap 'kiln delete -f "$here/tools.yaml" >/dev/null' EXIT

kiln apply -f "$here/tools.yaml"
kiln wait sum-in-container --timeout 90s

kiln logs sum-in-container
pod_of() { kiln get task "$1" -o yaml | grep podName; }
[ "$(pod_of numbers)" = "$(pod_of sum-in-container)" ]
[ "$(kiln result sum-in-container)" = '{"sum": 5050}' ]
echo "two containers of one Pod have made and added 100 numbers: ok"
