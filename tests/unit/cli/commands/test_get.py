"""`kiln get`: a server's table as text."""

from typing import Any

from kilnwork.cli.commands import get

COLUMNS: list[dict[str, Any]] = [
    {"name": "Name"},
    {"name": "State"},
    {"name": "Reason", "priority": 1},
]
ROWS: list[dict[str, Any]] = [{"cells": ["a", "Running", "Started"]}, {"cells": ["b", None, ""]}]


def test_columns_of_lower_priority_are_for_wide() -> None:
    assert get.table(COLUMNS, ROWS, wide=False) == (
        ["NAME", "STATE"],
        [["a", "Running"], ["b", None]],
    )
    assert get.table(COLUMNS, ROWS, wide=True)[0] == ["NAME", "STATE", "REASON"]
