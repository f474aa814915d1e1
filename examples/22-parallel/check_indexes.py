"""Check how the Jobs of this example have ended: `kiln get jobs -o json` is standard input."""

import json
import sys

found = {one["metadata"]["name"]: one["status"] for one in json.load(sys.stdin)["items"]}
assert {
    name: (status["phase"], status["indexes"]["failedIndexes"]) for name, status in found.items()
} == {
    "by-count": ("Succeeded", ""),
    "by-keys": ("Succeeded", ""),
    "by-matrix": ("Succeeded", ""),
    "all-of-them": ("Failed", "0"),  # the first that fails ends it
    "any-of-them": ("Succeeded", "0"),  # the first that succeeds does
    "two-of-three": ("Succeeded", "0"),
    "some-may-fail": ("Succeeded", "7-8"),
}
assert found["by-count"]["result"]["value"] == {
    "indexes": 100,
    "sum": sum(n * n for n in range(100)),
}
assert found["by-matrix"]["indexes"]["total"] == 4
