"""A mapper and a reducer that count the words of a text."""

import collections
import json
from collections.abc import Iterable


def count(line: str) -> dict[str, int]:
    """Count the words of one line."""
    return dict(collections.Counter(line.split()))


def total(results: Iterable[str]) -> dict[str, int]:
    """Add all counts up, the most frequent words first. Results of a text are lines."""
    result: collections.Counter[str] = collections.Counter()
    for line in results:
        result.update(json.loads(line))
    return dict(sorted(result.items(), key=lambda item: (-item[1], item[0])))
