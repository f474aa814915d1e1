"""The values that cross rooms about one attempt: who it is, what was seen, how it ended.

Used by dispatch, channel, worker and controllers alike; nothing here is stored by itself.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from kilnwork.kit import ids

# What a peer may send: checked while a frame is decoded, so that no later code must check it.
Id = Annotated[ids.TaskId, msgspec.Meta(min_length=16, max_length=16)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Label = Annotated[str, msgspec.Meta(max_length=1024)]


class AttemptRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identity of an attempt: task id (16 bytes), run and attempt, both counted from 1."""

    task: Id
    run: Count
    attempt: Count

    def __str__(self) -> str:
        return f"{ids.task_text(self.task)}/{self.run}/{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "AttemptRef":
        """Read what `str` gives. Raises ValueError."""
        task, run, attempt = text.split("/")
        return cls(ids.task_id(task), int(run), int(attempt))


class Ending(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value: the bytes, and what they are. At most `MAX_INLINE_BYTES`, else a blob.

    A blob is named by `digest` (SHA-256, 32 bytes) and `size`; `data` is empty then. `blobs`: the
    digests of further blobs that the value refers to, at any depth; they are kept as long as it is.
    """

    media_type: Label
    data: bytes
    digest: Digest | None = None
    size: Count = 0
    blobs: tuple[Digest, ...] = ()

    @property
    def digests(self) -> tuple[bytes, ...]:
        """Digests of all blobs that the value is or refers to."""
        return self.blobs if self.digest is None else (self.digest, *self.blobs)


JSON = "application/json"
PICKLE = "application/vnd.kilnwork.pickle"
"""Pickle 5 with its buffers out of band (`sdk.pickling`); never read by the dispatcher."""
ERROR = "application/vnd.kilnwork.error"
"""msgpack of an `ErrorInfo`: what a failed call has instead of a result."""
STREAM = "application/vnd.kilnwork.stream"
"""msgpack list of `Payload`: what a generator has yielded."""

MAX_INLINE_BYTES = 64 * 1024
"""Largest value that the journal keeps inline; larger ones are blobs."""


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True):
    """An exception that left a task function.

    `type`: module and qualified name; `text`: str() of it; `traceback`: as Python prints it, where
    it happened. `pickled`: the exception itself, None when it cannot be pickled. `notes`: as of
    `add_note`. `cause`: the error of the input that failed, for chaining.
    """

    type: str
    text: str
    traceback: str
    pickled: bytes | None = None
    notes: tuple[str, ...] = ()
    cause: "ErrorInfo | None" = None


MAX_STATUS_BYTES = 8 * 1024
"""Largest JSON result copied into `status.result.value`, so that objects stay small in etcd."""


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt has used.

    `cpu_s`: seconds of CPU, of all its processes that were waited for. `peak_bytes`: the most
    resident memory that one of them had; None: not known.
    """

    cpu_s: Seconds
    peak_bytes: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The end of an attempt as the worker reports it.

    `reason` is one of `api.reasons`. `exit_code` as a shell would say it: 128 + N for signal N.
    `proof`: nothing that the attempt started is left; False means some process may still run.
    `requested_retry`: it exited 75. `started`/`finished`: wall clock, seconds since the epoch.
    `result` of a failed call is its error. `may_retry`, `delegate`: see `calls.CallEnd`.
    `usage`: what it has used, as far as is known.
    """

    ending: Ending
    reason: Label
    message: str = ""
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] | None = None
    result: Payload | None = None
    proof: bool = True
    requested_retry: bool = False
    started: Seconds | None = None
    finished: Seconds | None = None
    may_retry: bool = True
    delegate: Id | None = None
    usage: Usage | None = None


def dropped_line(count: int) -> bytes:
    """Return the log line that replaces `count` dropped bytes of output."""
    return b"[kilnwork: %d bytes of output dropped here]\n" % count


def lost_line(count: int, why: str = "the disk was full") -> bytes:
    """Return the line that stands in a log for so many bytes that the disk did not take."""
    text = f"part of this output was lost: {why}; {count} bytes are missing here"
    return f"[kilnwork: {text}]\n".encode()
