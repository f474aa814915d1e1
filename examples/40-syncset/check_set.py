"""Check a finished set; `kiln get syncset -o json` comes on standard input."""

import collections
import csv
import json
import sys
from pathlib import Path

here = Path(__file__).parent
with (here / "market" / "rates.csv").open() as file:
    rates = {row["currency"]: int(row["rate"]) for row in csv.DictReader(file)}
expected: collections.Counter[str] = collections.Counter()
for path in (here / "trades").iterdir():
    with path.open() as file:
        for row in csv.DictReader(file):
            expected[row["book"]] += int(row["amount"]) * rates[row["currency"]]

status = json.load(sys.stdin)["status"]
assert status["phase"] == "Succeeded", status
assert (status["dataReady"], status["gang"], status["progress"]) == ("1/1", "2/2", "6/6"), status
result = status["result"]["value"]
assert result["total"]["books"] == expected, result
breaches = sum(value > 35_000 for value in expected.values())
assert result["total"]["breaches"] == breaches, result
assert result["report"] == ("alert" if breaches else "quiet"), result
snapshot = status["snapshots"]["trades"]
assert (snapshot["shards"], len(snapshot["digest"])) == (4, len("sha256:") + 64), snapshot
print(json.dumps(result))
