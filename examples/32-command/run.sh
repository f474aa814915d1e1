#!/usr/bin/env bash
# Maps a log with awk in parts, and compares with awk in one go. Needs a server: `kiln up`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN {
    srand(20261121)
    for (i = 1; i <= 20000; i++)
        printf "10.0.%d.%d GET /item/%d %d\n", rand() * 256, rand() * 256, i, rand() * 1000
}' > "$folder/access.log"

slow='$NF > 500 {print $1, $NF}'
kiln upload "$folder/access.log" --items-per-part 1000 -o "$folder/slow.txt" -- awk "$slow"
awk "$slow" "$folder/access.log" > "$folder/expected.txt"
cmp "$folder/slow.txt" "$folder/expected.txt"
echo "$(wc -l < "$folder/slow.txt") slow requests of 20000, as one awk finds them: ok"
