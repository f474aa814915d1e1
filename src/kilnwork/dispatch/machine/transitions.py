"""The one table of moves, for tasks and for attempts (docs/reference has it as a picture).

Used by the machine for every change of state; a move that is not here raises. Pure.
"""

from enum import StrEnum

from kilnwork.api import task as api_task

_S = api_task.State


class AttemptState(StrEnum):
    """Where an attempt is. Reserved is durable before anything starts."""

    RESERVED = "Reserved"
    STARTED = "Started"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"


_A = AttemptState

TASK_MOVES: frozenset[tuple[api_task.State, api_task.State]] = frozenset(
    {
        (_S.PENDING, _S.STAGING),  # an attempt is reserved
        (_S.STAGING, _S.RUNNING),  # its command was executed
        (_S.RUNNING, _S.SUCCESS),
        (_S.RUNNING, _S.FAILED),
        (_S.PENDING, _S.FAILED),  # pending timeout, total timeout, cluster deleted
        (_S.STAGING, _S.FAILED),  # could not be started
        (_S.STAGING, _S.PENDING),  # taken back, lost before start
        (_S.RUNNING, _S.PENDING),  # the next attempt
        (_S.PENDING, _S.KILLING),
        (_S.STAGING, _S.KILLING),
        (_S.RUNNING, _S.KILLING),
        (_S.KILLING, _S.KILLED),
        (_S.KILLING, _S.SUCCESS),  # the outcome was sent before the kill was read
        (_S.KILLING, _S.FAILED),  # "
    }
)

ATTEMPT_MOVES: frozenset[tuple[AttemptState, AttemptState]] = frozenset(
    {
        (_A.RESERVED, _A.STARTED),
        (_A.RESERVED, _A.FAILED),  # could not be started
        (_A.RESERVED, _A.LOST),
        (_A.RESERVED, _A.STOPPED),
        (_A.STARTED, _A.SUCCEEDED),
        (_A.STARTED, _A.FAILED),
        (_A.STARTED, _A.LOST),
        (_A.STARTED, _A.STOPPED),
    }
)
