"""The table of legal transitions: which state may follow which, for tasks and for attempts.

Used by `memory.Memory.move` and `move_attempt`, which make every state change; a change that is not
in the table raises an error. `docs/explanation/semantics.md` shows the same table.
"""

from collections.abc import Mapping
from enum import StrEnum

from kilnwork.api import task as api_task

_S = api_task.State


class AttemptState(StrEnum):
    """The state of an attempt. Reserved is on disk before anything of the attempt starts."""

    RESERVED = "Reserved"
    STARTED = "Started"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"


_A = AttemptState

TASK_MOVES: Mapping[api_task.State, frozenset[api_task.State]] = {
    _S.PENDING: frozenset(
        {
            _S.STAGING,  # an attempt is reserved
            _S.SUCCESS,  # the result of an earlier call is used again
            _S.FAILED,  # pending timeout, total timeout, an input failed, cluster deleted
            _S.KILLING,
        }
    ),
    _S.STAGING: frozenset(
        {
            _S.RUNNING,  # the attempt was reported as started
            _S.SUCCESS,  # a call that was over before its start was reported
            _S.FAILED,  # could not be started
            _S.PENDING,  # taken back, lost before start
            _S.KILLING,
        }
    ),
    _S.RUNNING: frozenset(
        {
            _S.SUCCESS,
            _S.FAILED,
            _S.PENDING,  # waits for the next attempt
            _S.KILLING,
        }
    ),
    _S.KILLING: frozenset(
        {
            _S.KILLED,
            _S.SUCCESS,  # the outcome was sent before the kill was read
            _S.FAILED,  # the same
        }
    ),
    _S.SUCCESS: frozenset(),
    _S.FAILED: frozenset(),
    _S.KILLED: frozenset(),
}

ATTEMPT_MOVES: Mapping[AttemptState | None, frozenset[AttemptState]] = {
    None: frozenset({_A.RESERVED}),  # the first attempt of a run
    _A.RESERVED: frozenset(
        {
            _A.STARTED,
            _A.SUCCEEDED,  # a call that was over before its start was reported
            _A.FAILED,  # could not be started
            _A.LOST,  # also: taken back
            _A.STOPPED,
        }
    ),
    _A.STARTED: frozenset({_A.SUCCEEDED, _A.FAILED, _A.LOST, _A.STOPPED}),
    _A.SUCCEEDED: frozenset(),
    _A.FAILED: frozenset({_A.RESERVED}),  # the next attempt
    _A.LOST: frozenset({_A.RESERVED}),
    _A.STOPPED: frozenset({_A.RESERVED}),
}
