"""The values that cross rooms about one attempt: who it is, what was seen, how it ended.

Used by dispatch, channel, worker and controllers alike; nothing here is stored by itself.
"""

from enum import StrEnum

import msgspec

from kilnwork.kit import ids


class AttemptRef(msgspec.Struct, frozen=True, array_like=True):
    """Identity of an attempt: task id (16 bytes), run and attempt, both counted from 1."""

    task: ids.TaskId
    run: int
    attempt: int

    def __str__(self) -> str:
        return f"{ids.task_text(self.task)}/{self.run}/{self.attempt}"


class Ending(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """A result: the bytes, and what they are. At most `MAX_INLINE_BYTES`."""

    media_type: str
    data: bytes


MAX_INLINE_BYTES = 64 * 1024
"""Largest result the journal keeps inline. Larger ones need a blob store, which comes later."""

MAX_STATUS_BYTES = 8 * 1024
"""Largest JSON result copied into `status.result.value`, so that objects stay small in etcd."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What the worker says of an attempt that is over.

    `reason` is one of `api.reasons`. `exit_code` as a shell would say it: 128 + N for signal N.
    `proof`: nothing that the attempt started is left; False means some process may still run.
    `requested_retry`: it exited 75. `started`/`finished`: wall clock, seconds since the epoch.
    """

    ending: Ending
    reason: str
    message: str = ""
    exit_code: int | None = None
    result: Payload | None = None
    proof: bool = True
    requested_retry: bool = False
    started: float | None = None
    finished: float | None = None
