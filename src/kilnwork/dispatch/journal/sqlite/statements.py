"""The journal's SQL, read from the `.sql` files next to this module.

Used by `journal`, `connections` and `queries`. `QUERIES` holds statements by name, `MIGRATIONS`
scripts in order.
"""

import re
from importlib import resources

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_ROW = re.compile(r"\((?:\?,\s*)*\?\)")
_FOLDER = resources.files("kilnwork.dispatch.journal.sqlite") / "sql"


def parse(text: str) -> dict[str, str]:
    """Statements by the name in the `-- name:` line above each."""
    parts = _NAME.split(text)
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def compact(statement: str) -> tuple[int, str]:
    """How many values its last row of `?` has, and the statement with `{}` for that row.

    Without comments and white space, so that as many rows as possible fit a statement that is kept
    prepared.
    """
    statement = _COMMENT.sub("", statement)
    last = list(_ROW.finditer(statement))[-1]
    text = " ".join(f"{statement[: last.start()]}{{}}{statement[last.end() :]}".split())
    return last.group().count("?"), text


def marks(width: int, rows: int) -> str:
    """So many rows of so many `?`."""
    row = f"({','.join('?' * width)})"
    return ",".join([row] * rows)


QUERIES = parse((_FOLDER / "queries.sql").read_text("utf-8"))

MIGRATIONS = tuple(
    entry.read_text("utf-8")
    for entry in sorted(_FOLDER.iterdir(), key=lambda entry: entry.name)
    if re.match(r"^\d{3}_.*\.sql$", entry.name)
)
"""Number n (from 1) brings a journal from version n - 1 to n (`PRAGMA user_version`)."""
