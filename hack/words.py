"""Finds words that this project avoids, with replacements: `python -m hack.words`.

Run by `make check`, and by hand. The list is `words.tsv` beside this file: words, places where a
word is the right one, and how many uses are left below a directory. It fails on more uses than
that, and says where the limit can be lowered. It reads names as well as texts: `_` and capitals
part words.

    python -m hack.words                     uses over their limit, with file and line
    python -m hack.words src/kilnwork/cli    every use below a path
    python -m hack.words --count             uses for each 1,000 lines of each limited path
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".tsv")

_READ = (".py", ".sql", ".md", ".yaml", ".sh", ".toml")
"""Endings of the files that people write; data and what generators make of them is not read."""

_SKIPPED = ("CHANGELOG.md", "docs/decisions/", "src/kilnwork/api/crds/")
"""What was written stays as it is; CRDs are generated."""


class Use(NamedTuple):
    """One use of a word; `line` counts from 1."""

    path: str
    line: int
    word: str
    instead: str


class Allowed(NamedTuple):
    """Lines on which any word of the list may stand."""

    prefix: str
    line: re.Pattern[str]


class Words:
    """The list: what is looked for, where it may stand, and how often.

    Raises ValueError for a line that is none of `word`, `allow` and `limit`.
    """

    def __init__(self, text: str) -> None:
        self._words: list[tuple[str, str]] = []
        self._allowed: list[Allowed] = []
        self.limits: dict[str, int] = {}
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            match line.split("\t"):
                case "word", pattern, instead:
                    self._words.append((pattern, instead))
                case "allow", prefix, pattern, _reason:
                    self._allowed.append(Allowed(prefix.removesuffix("*"), re.compile(pattern)))
                case "limit", prefix, count:
                    self.limits[prefix] = int(count)
                case _:
                    raise ValueError(f"{line!r} is no word, allow or limit with tabs between")
        whole = "|".join(f"({pattern})" for pattern, _ in self._words)
        self._pattern = re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{whole})(?![a-z])")

    def uses(self, path: str, text: str) -> Iterator[Use]:
        """Every use in a text that is not allowed there."""
        for number, line in enumerate(text.splitlines(), 1):
            for found in self._pattern.finditer(line):
                if not any(
                    path.startswith(one.prefix) and one.line.search(line) for one in self._allowed
                ):
                    instead = self._words[(found.lastindex or 1) - 1][1]
                    yield Use(path, number, found.group(), instead)

    def limited(self, path: str) -> str:
        """The longest limited prefix of a path, "" for none."""
        return max((one for one in self.limits if path.startswith(one)), key=len, default="")


def files(below: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Path and text of every file that is kept in Git and written by people."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *below], cwd=ROOT, check=True, capture_output=True
    )
    for path in sorted(listed.stdout.decode().split("\0")):
        if path.endswith(_READ) and not path.startswith(_SKIPPED) and (ROOT / path).is_file():
            yield path, (ROOT / path).read_text(encoding="utf-8")


def over_limits(words: Words, uses: Iterable[Use]) -> tuple[list[str], list[str]]:
    """Return lines to print: of what is over its limit, and of limits that can be lowered."""
    by_limit: dict[str, list[Use]] = {prefix: [] for prefix in [*words.limits, ""]}
    for use in uses:
        by_limit[words.limited(use.path)].append(use)
    lines, lower = list[str](), list[str]()
    for prefix, found in by_limit.items():
        limit = words.limits.get(prefix, 0)
        if len(found) > limit:
            lines += map(_shown, found)
            lines.append(f"{prefix or 'elsewhere'}: {len(found)} uses, {limit} allowed")
        elif len(found) < limit:
            lower.append(f"{prefix}: {len(found)} uses: lower its limit of {limit} in {LIST.name}")
    return lines, lower


def _shown(use: Use) -> str:
    return f"{use.path}:{use.line}: {use.word!r}: write {use.instead}"


def _print_counts(words: Words) -> None:
    lines: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    for path, text in files():
        prefix = words.limited(path)
        lines[prefix] += text.count("\n")
        uses[prefix] += sum(1 for _ in words.uses(path, text))
    for prefix, count in sorted(lines.items()):
        rate = 1000 * uses[prefix] / max(1, count)
        print(f"{prefix or 'elsewhere':28} {uses[prefix]:5} uses {rate:5.1f} per 1,000 lines")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found; 1 when something is over its limit."""
    parser = argparse.ArgumentParser(prog="python -m hack.words", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("path", nargs="*", help="show every use below it, whatever the limits")
    parser.add_argument("--count", action="store_true", help="show how many there are")
    given = parser.parse_args(arguments)
    words = Words(LIST.read_text(encoding="utf-8"))
    if given.count:
        _print_counts(words)
        return 0
    uses = [use for path, text in files(given.path) for use in words.uses(path, text)]
    lines, lower = (
        (list(map(_shown, uses)), list[str]()) if given.path else over_limits(words, uses)
    )
    for line in lines + lower:
        print(line)
    return 1 if lines and not given.path else 0


if __name__ == "__main__":
    sys.exit(main())
