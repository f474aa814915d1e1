"""Checks that the table of states of an executor agrees with its code."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kilnwork import executors
from kilnwork.api import reasons
from kilnwork.executors import state_table_types

R = reasons.Reason
ROOM = Path(executors.__file__).parent
DISPATCHER = {R.KILLED, R.UNCONFIRMED}
"""Reasons that the dispatcher gives attempts of every executor."""
DRIVER = {R.EXECUTOR_UNAVAILABLE, R.INTERNAL_ERROR}
"""Reasons that `controllers.attempts` sets for attempts of the manager's own executors."""
OUTSIDE = {
    R.EXECUTOR_UNAVAILABLE, R.NO_FREE_SLOT, R.WORKER_LOST, R.WORKER_STOPPING, R.DISPATCHER_AWAY,
}  # fmt: skip
"""Reasons that the dispatcher or `service` sets for attempts of executor processes."""


def reasons_in(pattern: str) -> Iterator[R]:
    """Yield every reason that sources below `executors` name, except in tables."""
    paths = sorted(ROOM.glob(pattern))
    assert paths, f"no source is named {pattern}"
    for path in paths:
        if path.name == "states_reference.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in R.__members__:
                yield reasons.Reason[node.attr]


def check(
    table: state_table_types.Table,
    sources: tuple[str, ...],
    *,
    others: set[R],
    unused: frozenset[R] = frozenset(),
) -> None:
    """Check that the table has exactly the reasons of `sources` and `others` except `unused`.

    Also that it has no row twice and that its states agree with what they count against.
    """
    given = {reason for pattern in sources for reason in reasons_in(pattern)} - unused
    assert {row.reason for row in table.rows} == given | others | DISPATCHER
    assert len(set(table.rows)) == len(table.rows)
    for row in table.rows:
        if row.counts is state_table_types.Counts.LOSS:
            assert row.state == "Pending", row
        if row.counts in (state_table_types.Counts.FAILURE, state_table_types.Counts.FINAL):
            assert row.state == "Failed", row
        if row.state == "Failed":
            assert row.counts, row
