#!/usr/bin/env bash
# Maps a log with awk in parts, and compares with awk in one go. Needs a server: `kiln up`.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

awk 'BEGIN {
    srand(20261121)
    for (i = 1; i <= 20000; i++)
        printf "10.0.%d.%d GET /item/%d %d\n", rand() * 256, rand() * 256, i, rand() * 1000
}' > "$directory/access.log"

slow='$NF > 500 {print $1, $NF}'
kiln upload "$directory/access.log" --items-per-part 1000 -o "$directory/slow.txt" -- awk "$slow"
awk "$slow" "$directory/access.log" > "$directory/expected.txt"
cmp "$directory/slow.txt" "$directory/expected.txt"
echo "$(wc -l < "$directory/slow.txt") slow requests of 20000, as one awk finds them: ok"
