"""The journal's SQL, read from the `.sql` files next to this module.

Used by `journal` and `queries`. `QUERIES` holds statements by name, `MIGRATIONS` scripts in order.
"""

import re
from importlib import resources

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_FOLDER = resources.files("kilnwork.dispatch") / "sql"


def parse(text: str) -> dict[str, str]:
    """Statements by the name in the `-- name:` line above each."""
    parts = _NAME.split(text)
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


QUERIES = parse((_FOLDER / "queries.sql").read_text("utf-8"))

MIGRATIONS = tuple(
    entry.read_text("utf-8")
    for entry in sorted(_FOLDER.iterdir(), key=lambda entry: entry.name)
    if re.match(r"^\d{3}_.*\.sql$", entry.name)
)
"""Number n (from 1) brings a journal from version n - 1 to n (`PRAGMA user_version`)."""
