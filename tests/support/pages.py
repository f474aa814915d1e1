"""The documentation as tests read it: pages, links, tables, and commands in console blocks.

In a ```console block every line from `$ ` to the next `$ ` is one command: pages show no output in
them, so that a test can run what a reader would type. The output may follow in a ```text block.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<", "<(", ")"})


class Row(NamedTuple):
    """One row of a table below a heading: its cells without backticks."""

    cells: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.cells[0]


def all_pages() -> list[Path]:
    """Return README.md and all pages below docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def console(text: str) -> list[str]:
    """Return the commands in the console blocks of a page, in order, without `$ `."""
    found: list[str] = []
    for body in blocks(text, "console"):
        found += [part.strip() for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]]
    return found


def kiln_lines(command: str) -> Iterator[list[str]]:
    """Yield the arguments of each `kiln …` in a shell command; here-documents are left out."""
    lexer = shlex.shlex(command.partition("<<")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SEPARATORS:
            words.append(word)
            continue
        if words[:1] == ["kiln"]:
            yield words[1:]
        words = []


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return [body for marked, body in _FENCE.findall(text) if marked == language]


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield all code blocks of a page in order as (language, body)."""
    for found in _FENCE.finditer(text):
        yield found[1], found[2]


def links(text: str) -> list[str]:
    """Return the targets of the links in a page, code left out."""
    prose = re.sub(r"`[^`\n]*`", "``", _FENCE.sub("", text))
    return _LINK.findall(prose)


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for _, title in _HEADING.findall(text))
    return {title.replace(" ", "-") for title in kept}


def sections(text: str, level: int) -> dict[str, str]:
    """Return the text below each heading of a level, up to the next of this or a higher level."""
    found: dict[str, str] = {}
    current = ""
    for line in _FENCE.sub("", text).splitlines():
        heading = _HEADING.match(line)
        if heading and len(heading[1]) <= level:
            current = heading[2].replace("`", "") if len(heading[1]) == level else ""
            continue
        if current:
            found[current] = found.get(current, "") + line + "\n"
    return found


def table(text: str) -> list[Row]:
    """Return the rows of all tables in a text, without headers."""
    rows: list[Row] = []
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("|") or set(line) <= set("|-: ") or not before.startswith("|"):
            continue
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        rows.append(Row(tuple(_bare(cell) for cell in cells)))
    return rows


def _bare(cell: str) -> str:
    text = cell.strip().replace("\\|", "|")
    return text[1:-1] if re.fullmatch(r"`[^`]+`", text) else text
