"""Values about one attempt that several packages exchange: its identity, observations, outcome.

Used by most packages. None of these values is stored on its own.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from kilnwork.kit import ids

# Bounds of values that a peer sends: they are checked while a frame is decoded, so that later code
# can rely on them.
Id = Annotated[ids.TaskId, msgspec.Meta(min_length=16, max_length=16)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Label = Annotated[str, msgspec.Meta(max_length=1024)]


class AttemptRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identity of an attempt: task id (16 bytes), run and attempt number, both counted from 1."""

    task: Id
    run: Count
    attempt: Count

    def __str__(self) -> str:
        return f"{ids.task_text(self.task)}/{self.run}/{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "AttemptRef":
        """Parse the output of `str`. Raises ValueError."""
        task, run, attempt = text.split("/")
        return cls(ids.task_id(task), int(run), int(attempt))


class Ending(StrEnum):
    """Way in which an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value: its bytes, or a reference to a blob if it has more than `MAX_INLINE_BYTES`."""

    media_type: Label
    data: bytes
    """The bytes; empty if the value is a blob."""
    digest: Digest | None = None
    """SHA-256 of the blob (32 bytes); None if the value is inline."""
    size: Count = 0
    """Size of the blob in bytes."""
    blobs: tuple[Digest, ...] = ()
    """Digests of further blobs that the value refers to, at any depth. They are kept as long as
    the value."""

    @property
    def digests(self) -> tuple[bytes, ...]:
        """Return the digests of all blobs that the value consists of or refers to."""
        return self.blobs if self.digest is None else (self.digest, *self.blobs)


JSON = "application/json"
PICKLE = "application/vnd.kilnwork.pickle"
"""Media type of a pickle, protocol 5 with its buffers out of band (`sdk.serialization`). The
dispatcher never reads it."""
ERROR = "application/vnd.kilnwork.error"
"""Media type of an `ErrorInfo` in msgpack: the payload of a failed call."""
STREAM = "application/vnd.kilnwork.stream"
"""Media type of a msgpack list of `Payload`: the values that a generator has yielded."""

MAX_INLINE_BYTES = 64 * 1024
"""Maximum size of a value that the journal keeps inline; larger values are blobs."""


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True):
    """An exception raised by a task function."""

    type: str
    """Module and qualified name of the exception's class."""
    text: str
    """str() of the exception."""
    traceback: str
    """The traceback as printed by Python where the exception was raised."""
    pickled: bytes | None = None
    """The pickled exception; None if it cannot be pickled."""
    notes: tuple[str, ...] = ()
    """The exception's `__notes__`."""
    cause: "ErrorInfo | None" = None
    """The error of the failed input, for exception chaining."""


MAX_STATUS_BYTES = 8 * 1024
"""Maximum size of a JSON result that is copied into `status.result.value`, so that objects stay
small in etcd."""


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Resources used by an attempt."""

    cpu_s: Seconds
    """CPU time in seconds of all processes of the attempt that were waited for."""
    peak_bytes: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None
    """Maximum resident memory of a single process; None if unknown."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of an attempt as its worker or executor reports it."""

    ending: Ending
    reason: Label
    """Why the attempt ended: one of `api.reasons`."""
    message: str = ""
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] | None = None
    """Exit code as in a shell: 128 + N for signal N."""
    result: Payload | None = None
    """The result, or the error of a failed call."""
    proof: bool = True
    """Whether it is certain that no process of the attempt still runs."""
    requested_retry: bool = False
    """Whether the attempt exited with code 75."""
    started: Seconds | None = None
    """Time at which the attempt started, in seconds since the epoch (wall clock); None if it did
    not start, or if the time is unknown."""
    finished: Seconds | None = None
    """Time at which the attempt finished, in seconds since the epoch (wall clock); None if
    unknown."""
    may_retry: bool = True
    """See `calls.CallEnd`."""
    delegate: Id | None = None
    """See `calls.CallEnd`."""
    usage: Usage | None = None
    """Resources used, as far as known."""


def dropped_line(count: int) -> bytes:
    """Return the log line that replaces `count` dropped bytes of output."""
    return b"[kilnwork: %d bytes of output dropped here]\n" % count


def lost_line(count: int, why: str = "the disk was full") -> bytes:
    """Return the log line that replaces `count` bytes that could not be written to disk."""
    text = f"part of this output was lost: {why}; {count} bytes are missing here"
    return f"[kilnwork: {text}]\n".encode()
