#!/usr/bin/env bash
# Counts the words of a text in parts, and compares with counting them at once. Needs a server:
# `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

awk 'BEGIN {
    srand(20261121)
    n = split("batch cluster future kiln node pod queue slot task worker", words)
    for (i = 1; i <= 20000; i++) {
        line = ""
        for (j = int(rand() * 9); j > 0; j--) line = line words[int(rand() * n) + 1] " "
        print line
    }
}' > "$directory/text.txt"

kiln upload "$directory/text.txt" --items-per-part 1000 \
    --mapper "$here/words.py:count" --reducer "$here/words.py:total" -o "$directory/counts.json"

python3 - "$directory" <<'PYTHON'
import collections, json, pathlib, sys

directory = pathlib.Path(sys.argv[1])
counts = json.loads((directory / "counts.json").read_text())
expected = collections.Counter((directory / "text.txt").read_text().split())
assert counts == expected, "the counts differ from those of the text"
print(f"{sum(counts.values()):,} words in 20 parts, each counted once: ok")
PYTHON
