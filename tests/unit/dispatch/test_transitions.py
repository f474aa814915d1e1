"""The table of moves says exactly what the design says, for every pair."""

import itertools

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import transitions

STATES = api_task.State
ATTEMPTS = transitions.AttemptState
LEGAL = {
    "Pending": {"Staging", "Failed", "Killing"},
    "Staging": {"Running", "Failed", "Pending", "Killing"},
    "Running": {"Success", "Failed", "Pending", "Killing"},
    "Killing": {"Killed", "Success", "Failed"},
    "Success": set(),
    "Failed": set(),
    "Killed": set(),
}
LEGAL_ATTEMPTS = {
    "Reserved": {"Started", "Failed", "Lost", "Stopped"},
    "Started": {"Succeeded", "Failed", "Lost", "Stopped"},
    "Succeeded": set(),
    "Failed": set(),
    "Lost": set(),
    "Stopped": set(),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, STATES)), ids=str)
def test_a_task_moves_only_along_the_table(before: api_task.State, after: api_task.State) -> None:
    legal = after.value in LEGAL[before.value]
    assert ((before, after) in transitions.TASK_MOVES) == legal


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ATTEMPTS, ATTEMPTS)), ids=str)
def test_an_attempt_moves_only_along_the_table(
    before: transitions.AttemptState, after: transitions.AttemptState
) -> None:
    legal = after.value in LEGAL_ATTEMPTS[before.value]
    assert ((before, after) in transitions.ATTEMPT_MOVES) == legal


def test_nothing_leaves_a_final_state() -> None:
    assert not [move for move in transitions.TASK_MOVES if move[0].final]
