"""The tables of states say of each executor what its code does."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork import executors
from kilnwork.api import reasons
from kilnwork.executors import external_states, state_tables
from kilnwork.executors.custom_resource import states as objects
from kilnwork.executors.ephemeral import states as ephemeral
from kilnwork.executors.http import states as http
from kilnwork.executors.pod import states as pods

R = reasons.Reason
ROOM = Path(executors.__file__).parent
DISPATCHER = {R.KILLED, R.UNCONFIRMED}
"""Said by the dispatcher of every executor."""
DRIVER = {R.EXECUTOR_UNAVAILABLE, R.INTERNAL_ERROR}
"""Said by `controllers.attempts` of those of the manager."""
OUTSIDE = {
    R.EXECUTOR_UNAVAILABLE, R.NO_FREE_SLOT, R.WORKER_LOST, R.WORKER_STOPPING, R.DISPATCHER_AWAY,
}  # fmt: skip
"""Said by the dispatcher, or by `service`, of executors that are processes of their own."""

# Each with the sources that judge its attempts, what others say of them, and what is none of its
# attempts although a source names it.
CASES: dict[str, tuple[state_tables.Table, tuple[str, ...], set[R], set[R]]] = {
    "pod": (
        pods.TABLE,
        ("pod/*.py", "refusals.py"),
        DRIVER | {R.INVALID_RESULT, R.RESULT_TOO_LARGE},  # of its sidecar
        set(),
    ),
    "object": (
        objects.OBJECTS,
        ("custom_resource/*.py", "refusals.py"),
        DRIVER,
        set(),
    ),
    "workflow": (
        objects.WORKFLOWS,
        ("custom_resource/*.py", "workflow/*.py", "refusals.py"),
        DRIVER,
        {R.OBJECT_FAILED},
    ),
    "ephemeral": (
        ephemeral.TABLE,
        ("ephemeral/*.py",),
        # of its worker, which reads the result, and of `pod.observation` (what ends a Pod)
        DRIVER
        | {R.NO_WORKER, R.NO_FREE_SLOT, R.WORKER_LOST, R.INVALID_RESULT, R.RESULT_TOO_LARGE}
        | {R.EVICTED, R.PREEMPTED, R.NODE_LOST},
        {R.POD_LOST},
    ),
    "http": (
        http.TABLE,
        ("http/*.py", "process_attempt.py"),
        OUTSIDE | {R.EXECUTOR_LOST},
        {R.REPLACED},
    ),
    "external": (
        external_states.TABLE,
        ("external.py", "process_attempt.py", "../controllers/task_claim/*.py"),
        OUTSIDE | {R.NO_FREE_SLOT, R.STARTING, R.STARTED},
        {R.REPLACED},
    ),
}


def named(pattern: str) -> Iterator[R]:
    """Every reason that sources name, tables apart."""
    for path in sorted(ROOM.glob(pattern)):
        if path.name == "states.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in R.__members__:
                yield reasons.Reason[node.attr]


@pytest.mark.parametrize("name", CASES)
def test_a_table_has_the_reasons_that_the_code_gives(name: str) -> None:
    table, patterns, others, none = CASES[name]
    given = {reason for pattern in patterns for reason in named(pattern)} - none
    assert given, "no source was read"
    assert {row.reason for row in table.rows} == given | others | DISPATCHER


@pytest.mark.parametrize("name", CASES)
def test_states_and_what_they_count_against_agree(name: str) -> None:
    for row in CASES[name][0].rows:
        if row.counts is state_tables.Counts.LOSS:
            assert row.state == "Pending", row
        if row.counts in (state_tables.Counts.FAILURE, state_tables.Counts.FINAL):
            assert row.state == "Failed", row
        if row.state == "Failed":
            assert row.counts, row


@pytest.mark.parametrize("name", CASES)
def test_no_row_is_there_twice(name: str) -> None:
    rows = CASES[name][0].rows
    assert len(set(rows)) == len(rows)


def test_a_page_without_the_place_of_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for table states"):
        state_tables.written("a page", [pods.TABLE])
