#!/usr/bin/env bash
# Uploads the sample in parts of 4 lines, waits, compares. Needs a server: `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
result=$(mktemp)
trap 'rm -f "$result"' EXIT

kiln upload "$here/sample_small_work.json" --mapper calculator --items-per-part 4 -o "$result"
cmp "$result" "$here/sample_small_work.results.json"
echo "21 records in 6 parts, byte for byte as expected: ok"
