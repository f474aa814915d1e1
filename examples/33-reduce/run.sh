#!/usr/bin/env bash
# Counts the words of a text in parts, and compares with counting them at once. Needs a server:
# `kiln up`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN {
    srand(20261121)
    n = split("batch cluster future kiln node pod queue slot task worker", words)
    for (i = 1; i <= 20000; i++) {
        line = ""
        for (j = int(rand() * 9); j > 0; j--) line = line words[int(rand() * n) + 1] " "
        print line
    }
}' > "$folder/text.txt"

kiln upload "$folder/text.txt" --items-per-part 1000 \
    --mapper "$here/words.py:count" --reducer "$here/words.py:total" -o "$folder/counts.json"

python3 - "$folder" <<'PYTHON'
import collections, json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
counts = json.loads((folder / "counts.json").read_text())
expected = collections.Counter((folder / "text.txt").read_text().split())
assert counts == expected, "the counts differ from those of the text"
print(f"{sum(counts.values()):,} words in 20 parts, each counted once: ok")
PYTHON
