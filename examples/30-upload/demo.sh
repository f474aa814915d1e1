#!/usr/bin/env bash
# All of this example by itself: a server of its own, the upload by command and by curl, the checks.
# Ends with their exit code and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")"
. ../server.sh

serve --source-compat
say ./run.sh
say kiln files
if command -v curl >/dev/null; then
    address=$(sed -n 's|^The Jobs API is at \(http://[^/]*\)/jobs.*|\1|p' "$log")
    say ./curl.sh "$address"
fi
printf '\n%sThe result of the file is byte for byte what it should be.%s\n' "$green" "$plain"
