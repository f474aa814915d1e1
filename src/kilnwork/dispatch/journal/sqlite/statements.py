"""The journal's SQL, read from the `.sql` files beside this module.

Used by `journal`, `connections` and `queries`. `QUERIES` holds statements by name, `MIGRATIONS` the
migration scripts in order.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from kilnwork.dispatch.journal import row_codec_generator, task_rows

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_ROW = re.compile(r"\((?:\?,\s*)*\?(?:,\s*[^,()?]+)*\)")
_TASK_ROW = (
    "(SELECT {} FROM task t LEFT JOIN worker w ON w.worker = t.worker "
    "LEFT JOIN template p ON p.template = t.template LEFT JOIN argument a ON a.row = t.row)"
)
_FUNCTION = (
    "CASE WHEN json_valid(CAST({0} AS TEXT)) THEN "
    "coalesce(json_extract(CAST({0} AS TEXT), '$.call.function'), '') ELSE '' END"
)
"""SQL expression for the function that a spec calls; "" if the spec is not a call."""
_WANTED = """(?1 IS NULL OR f.namespace = ?1)
    AND (?5 IS NULL OR f.state = ?5)
    AND (?6 IS NULL OR f.declared = ?6)
    AND (?7 IS NULL OR f.parent = ?7)
    AND (?8 IS NULL
        OR f.template IN (SELECT template FROM template
            WHERE (?1 IS NULL OR namespace = ?1)
                AND json_extract(CAST(spec AS TEXT), '$.call.function') = ?8)
        OR (f.template IS NULL
            AND json_extract(CAST(f.spec AS TEXT), '$.call.function') = ?8))
    AND f.run = (SELECT max(run) FROM task WHERE task = f.task)"""
"""SQL conditions on a run `f` for the filters of a list."""
_BRACES = re.compile(r"\{([a-z_]+)\}")
_DIRECTORY = resources.files("kilnwork.dispatch.journal.sqlite") / "sql"


def parse(text: str) -> dict[str, str]:
    """Return the statements of a file, by the name in the `-- name:` line above each."""
    parts = _NAME.split(text)
    return {
        name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def compact(statement: str) -> tuple[str, str]:
    """Return the last row of `?` in a statement, and the statement with `{}` in place of that row.

    Constants may follow the `?`. Comments and white space are removed, so that as many rows as
    possible fit a statement that is kept prepared.
    """
    statement = _COMMENT.sub("", statement)
    last = list(_ROW.finditer(statement))[-1]
    text = " ".join(f"{statement[: last.start()]}{{}}{statement[last.end() :]}".split())
    return "".join(last.group().split()), text


def _row(width: int, *constants: object) -> str:
    """Return the SQL of a row of values: `width` times `?`, then the constants."""
    return f"({', '.join([*'?' * width, *map(_literal, constants)])})"


def _literal(constant: object) -> str:
    return f"X'{constant.hex()}'" if isinstance(constant, bytes) else repr(constant)


def _pieces() -> dict[str, str]:
    """Return the SQL that replaces each name in braces, such as lists of task columns.

    The columns are in the order in which `task_rows` makes their values.
    """
    changing = [column.name for column in task_rows.CHANGING]
    new_call, constants = task_rows.NEW_CALL, task_rows.CALL_CONSTANTS
    chosen = ", ".join(f"{column.select} AS {column.name}" for column in task_rows.COLUMNS)
    return {
        "task_row": _TASK_ROW.format(chosen),
        "function": _FUNCTION.format(task_rows.SPEC),
        "own_function": _FUNCTION.format("t.spec"),
        "shared_function": _FUNCTION.format("p.spec"),
        "wanted": _WANTED,
        "stored": ", ".join(column.name for column in task_rows.OWN_SPEC),
        "stored_marks": ", ".join("?" for _ in task_rows.OWN_SPEC),
        "changes": ", ".join(f"{name} = ?{number}" for number, name in enumerate(changing, 1)),
        "row": f"?{len(changing) + 1}",
        "state": f"?{changing.index('state') + 1}",
        "new_call": ", ".join(column.name for column in (*new_call, *constants)),
        "new_call_row": _row(len(new_call), *(one.new_call for one in constants)),
        "reserved": _assigned(task_rows.RESERVED),
        "reserved_row": _row(len(task_rows.RESERVED)),
        "finished": _assigned(task_rows.FINISHED),
        "finished_row": _row(len(task_rows.FINISHED)),
    }


def _assigned(columns: Sequence[row_codec_generator.Column]) -> str:
    """Return the SQL that assigns all columns but the first, which identifies the row."""
    numbered = enumerate(columns[1:], 2)
    return ", ".join(f"{column.name} = v.column{number}" for number, column in numbered)


def read(text: str, pieces: Mapping[str, str]) -> dict[str, str]:
    """Return the statements of a file by name, with names in braces replaced by `pieces`."""
    return parse(_BRACES.sub(lambda found: pieces[found.group(1)], text))


NARROWED = {
    "": "",
    "_unfinished": " AND f.finished IS NULL",
    "_unusual": (
        " AND f.state = ?5 AND f.state <> 'Success' AND f.state <> 'Staging'"
        " AND f.state <> 'Pending'"
    ),
}
"""Conditions that an index serves, by the suffix of the name of a statement of `listing.sql`."""


def _listing() -> dict[str, str]:
    text, pieces = (_DIRECTORY / "listing.sql").read_text("utf-8"), _pieces()
    return {
        f"{name}{suffix}": statement
        for suffix, narrow in NARROWED.items()
        for name, statement in read(text, {**pieces, "narrow": narrow}).items()
    }


QUERIES = {
    **read((_DIRECTORY / "queries.sql").read_text("utf-8"), _pieces()),
    **_listing(),
    **parse((_DIRECTORY / "jobs.sql").read_text("utf-8")),
    **parse((_DIRECTORY / "flows.sql").read_text("utf-8")),
}

MIGRATIONS = tuple(
    entry.read_text("utf-8")
    for entry in sorted(_DIRECTORY.iterdir(), key=lambda entry: entry.name)
    if re.match(r"^\d{3}_.*\.sql$", entry.name)
)
"""Migrations: number n (from 1) brings a journal from version n - 1 to n (`PRAGMA
user_version`).
"""
