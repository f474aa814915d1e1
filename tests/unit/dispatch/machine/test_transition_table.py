"""Every change of state goes through one table, which is what the documentation shows."""

import ast
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.machine import memory, records, transition_table
from kilnwork.kit import ids

ROOT = Path(__file__).resolve().parents[4]
STATES = api_task.State
ATTEMPTS = transition_table.AttemptState
LEGAL = {
    "Pending": {"Staging", "Success", "Failed", "Killing"},
    "Staging": {"Running", "Success", "Failed", "Pending", "Killing"},
    "Running": {"Success", "Failed", "Pending", "Killing"},
    "Killing": {"Killed", "Success", "Failed"},
    "Success": set(),
    "Failed": set(),
    "Killed": set(),
}
LEGAL_ATTEMPTS = {
    None: {"Reserved"},
    "Reserved": {"Started", "Succeeded", "Failed", "Lost", "Stopped"},
    "Started": {"Succeeded", "Failed", "Lost", "Stopped"},
    "Succeeded": set(),
    "Failed": {"Reserved"},
    "Lost": {"Reserved"},
    "Stopped": {"Reserved"},
}
MOVES = {"move", "move_attempt"}
"""Methods of `memory.Memory`, the only code that changes a state."""


def record(
    state: api_task.State, attempt: transition_table.AttemptState | None
) -> tuple[memory.Memory, records.Task]:
    mem = memory.Memory(lease_s=10.0, entropy=random.Random(0))
    task = records.Task(
        1,
        ids.TaskId(bytes(16)),
        1,
        "ns",
        "t",
        mem.cluster("ns", "default"),
        False,
        api_task.TaskSpec(),
        state=state,
        attempt_state=attempt,
    )
    return mem, task


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, STATES)), ids=str)
def test_a_task_moves_only_along_the_table(before: api_task.State, after: api_task.State) -> None:
    mem, task = record(before, None)
    if after.value in LEGAL[before.value]:
        mem.move(task, after)
        assert task.state is after
        assert task in mem.batch.dirty
    else:
        with pytest.raises(errors.IllegalTransition, match=f"{before} → {after}"):
            mem.move(task, after)
        assert task.state is before
        assert not mem.batch.dirty


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product([None, *ATTEMPTS], ATTEMPTS)), ids=str
)
def test_an_attempt_moves_only_along_the_table(
    before: transition_table.AttemptState | None, after: transition_table.AttemptState
) -> None:
    mem, task = record(STATES.RUNNING, before)
    legal = LEGAL_ATTEMPTS[None if before is None else before.value]
    if after.value in legal:
        mem.move_attempt(task, after)
        assert task.attempt_state is after
        assert task.state is STATES.RUNNING
        assert task in mem.batch.dirty
    else:
        with pytest.raises(errors.IllegalTransition, match=f"{before} → {after}"):
            mem.move_attempt(task, after)
        assert task.attempt_state is before
        assert not mem.batch.dirty


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, STATES)), ids=str)
def test_attempt_and_task_move_together_or_not_at_all(
    before: api_task.State, after: api_task.State
) -> None:
    mem, task = record(before, ATTEMPTS.RESERVED)
    if after.value in LEGAL[before.value]:
        mem.move_attempt(task, ATTEMPTS.SUCCEEDED, state=after)
        assert (task.state, task.attempt_state) == (after, ATTEMPTS.SUCCEEDED)
    else:
        with pytest.raises(errors.IllegalTransition):
            mem.move_attempt(task, ATTEMPTS.SUCCEEDED, state=after)
        assert (task.state, task.attempt_state) == (before, ATTEMPTS.RESERVED)


def test_final_state_cannot_be_left() -> None:
    assert not [state for state in STATES if state.final and transition_table.TASK_MOVES[state]]


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "docs/explanation/semantics.md").read_text()
    shown = {}
    for before, after in re.findall(
        r"^\| ([A-Z][a-z]+) \| ([A-Z][A-Za-z, ]+) \|$", page, re.MULTILINE
    ):
        if before in LEGAL:
            shown[before] = set(after.split(", "))
    assert shown == {before: after for before, after in LEGAL.items() if after}
    assert "| Success, Failed, Killed | none in this run |" in page


def assigned(tree: ast.AST) -> Iterator[ast.AST]:
    """What statements of a module assign to, of any kind."""
    for node in ast.walk(tree):
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        for target in targets:
            yield from ast.walk(target)


def called(tree: ast.AST) -> Iterator[str]:
    """Names of functions and methods that a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.attr if isinstance(function, ast.Attribute) else ""
            yield function.id if isinstance(function, ast.Name) else ""


def test_no_other_code_changes_a_state() -> None:
    inside: list[tuple[str, int]] = []
    outside: list[tuple[str, int]] = []
    for file in sorted((ROOT / "src/kilnwork/dispatch").rglob("*.py")):
        tree = ast.parse(file.read_text())
        assert not {"setattr", "__setattr__", "force_setattr"}.intersection(called(tree)), file
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        moves = [node for node in functions if node.name in MOVES and file.name == "memory.py"]
        allowed = {id(part) for node in moves for part in ast.walk(node)}
        for target in assigned(tree):
            if isinstance(target, ast.Attribute) and target.attr in ("state", "attempt_state"):
                place = (file.name, target.lineno)
                (inside if id(target) in allowed else outside).append(place)
    assert outside == []
    assert len(inside) == 3  # those of the two move functions: what is looked for is found
