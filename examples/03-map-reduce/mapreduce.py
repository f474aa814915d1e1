"""Counts the words of a file in parts, in parallel. Run it with `python mapreduce.py`."""

import collections
import random
import sys
import tempfile
from pathlib import Path

import kilnwork as kiln

WORDS = ("batch", "cluster", "future", "kiln", "node", "pod", "queue", "slot", "task", "worker")
LINES = 50_000
PARTS = 16


@kiln.task
def count(part: kiln.Part) -> dict[str, int]:
    """Count the words of one part, which is read line by line where the task runs."""
    counts: collections.Counter[str] = collections.Counter()
    for line in part:
        counts.update(line.split())
    return dict(counts)


@kiln.task
def total(counts: list[dict[str, int]]) -> dict[str, int]:
    """Add all counts up."""
    result: collections.Counter[str] = collections.Counter()
    for each in counts:
        result.update(each)
    return dict(result)


@kiln.task
def mapreduce(parts: list[kiln.Part]) -> kiln.Future[dict[str, int]]:
    """Return a future, so that this task ends at once; its result is that of `total`."""
    return total.submit(count.map(parts))


def generate(path: Path) -> dict[str, int]:
    """Write a text of known counts, the same in every run."""
    chance = random.Random(20261121)
    lines = [chance.choices(WORDS, k=chance.randint(0, 12)) for _ in range(LINES)]
    path.write_text("".join(" ".join(words) + "\n" for words in lines))
    return dict(collections.Counter(word for words in lines for word in words))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "words.txt"
        expected = generate(path)
        counts = mapreduce.submit(kiln.split(path, PARTS)).result()
    assert counts == expected, "the counts differ from those of the text that was generated"
    words = sum(counts.values())
    print(f"{words:,} words in {PARTS} parts, each counted once: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        main()
