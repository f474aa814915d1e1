"""Check a generation: its number, result and reused results; the set comes on standard input."""

import json
import sys

status = json.load(sys.stdin)["status"]
generation, result, reused = map(int, sys.argv[1:])
print(
    f"generation {generation}: {status['result']['value']} of",
    status["snapshots"]["orders"]["digest"][:19],
    f"with {status['flow']['steps']['add']['reused']} results used again",
)
assert (status["phase"], status["generation"]) == ("Succeeded", generation), status
assert status["result"]["value"] == result, status
assert status["flow"]["steps"]["add"]["reused"] == reused, status
