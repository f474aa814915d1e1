#!/usr/bin/env bash
# The same with curl alone, as in the README of aksjobscheduler. Needs `kiln up --source-compat`.
# Usage: curl.sh [ADDRESS], by default http://127.0.0.1:7444.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
address=${1:-http://127.0.0.1:7444}
result=$(mktemp)
trap 'rm -f "$result"' EXIT

id=$(curl -sS --fail -X POST "$address/jobs" \
    -H 'Content-Type: multipart/form-data' \
    -H 'cache-control: no-cache' \
    -H 'content-type: multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW' \
    -F "file=@$here/sample_small_work.json")
echo "job $id"

for _ in $(seq 600); do
    job=$(curl -sS --fail "$address/jobs/$id")
    case $job in
        *'"status":"Complete"'*) break ;;
        *'"status":"Failed"'*) echo "$job" >&2; exit 1 ;;
    esac
    sleep 0.1
done
echo "$job"

curl -sS --fail "$address/jobs/$id/results" --output "$result"
cmp "$result" "$here/sample_small_work.results.json"
curl -sS --fail "$address/jobs/$id/results?part=1" --output "$result"
cmp "$result" "$here/sample_small_work.results.json"
echo "21 records by curl, byte for byte as expected: ok"
