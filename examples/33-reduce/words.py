"""A mapper and a reducer: the words of a line, and of all lines."""

import collections
import json
from collections.abc import Iterable


def count(line: str) -> dict[str, int]:
    """The words of one line."""
    return dict(collections.Counter(line.split()))


def total(results: Iterable[str]) -> dict[str, int]:
    """All counts in one, the most frequent words first. Results of a text are lines."""
    result: collections.Counter[str] = collections.Counter()
    for line in results:
        result.update(json.loads(line))
    return dict(sorted(result.items(), key=lambda item: (-item[1], item[0])))
