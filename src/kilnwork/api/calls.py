"""Values about calls that several packages exchange: Python functions run as tasks, in batches.

Used by channel, dispatch, sdk and worker as the bodies of frames. A *call* is a task whose spec
has `call`. The part that many calls share (function, retry, timeouts, priority) is a *template*,
sent once on each link and then referenced by a number; a call contains only what differs. These
structs are not tracked by the garbage collector, since none can be part of a cycle.
"""

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task


class Cache(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Permission to use the result of an earlier call."""

    key: attempts.Digest
    """Digest of function, code and arguments."""
    seconds: attempts.Seconds
    """Maximum age of the result."""


class CallItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call that a submitter wants to run: a driver, or a slot on behalf of a running task."""

    number: attempts.Count
    """Consecutive number within the submitter's session, from 1, under which the result is
    returned."""
    task: attempts.Id
    """Id of the task, chosen by the submitter (UUIDv7), so that it is known immediately."""
    template: attempts.Count
    """Number of a Template sent earlier on this link."""
    arguments: attempts.Payload
    needs: tuple[attempts.Id, ...] = ()
    """Tasks whose results are arguments of the call, as futures. The call waits until all of
    them are final."""
    name: attempts.Label | None = None
    key: attempts.Label | None = None
    """Permanent name of the call; for children, within the run of their parent."""
    ordinal: attempts.Count = 0
    """Without a key, the number of this call among the attempt's calls of the same function,
    from 1; 0 for drivers."""
    parent: attempts.AttemptRef | None = None
    """The attempt that submits the call; set by slots only."""
    retry_failed: bool = False
    """Whether to run the call again, with the current arguments, if the call named by `key` failed
    before this session."""
    cache: Cache | None = None
    """None: the call runs whatever earlier results exist."""


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outcome of a task, as passed to a call that needs the task's result."""

    task: attempts.Id
    state: api_task.State
    reason: str
    message: str
    payload: attempts.Payload | None = None
    """The task's result, or its error."""


class CallRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reserved attempt for a slot."""

    ref: attempts.AttemptRef
    template: attempts.Count
    """Number of a Template sent earlier on this link."""
    arguments: attempts.Payload
    name: str
    values: tuple[Value, ...] = ()
    """Results of the tasks that the call needs, as far as they fit into the frame; the slot
    watches the other tasks."""
    in_place: bool = False
    """Whether to run the call immediately, on top of the attempt that waits for it."""


class CallEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of an attempt of a call."""

    ref: attempts.AttemptRef
    ending: attempts.Ending
    reason: attempts.Label
    message: str
    payload: attempts.Payload | None
    """The result of a success, or the error of a failure."""
    started: attempts.Seconds
    """Time at which the attempt started, in seconds since the epoch (wall clock)."""
    seconds: attempts.Seconds
    """Duration of the attempt."""
    may_retry: bool = True
    """Whether the task may be retried; False if its rules exclude this exception."""
    delegate: attempts.Id | None = None
    """The task whose future the call returned; its outcome becomes the outcome of this call."""
    usage: attempts.Usage | None = None
    """Resources used. None: the call took less than a millisecond in a slot, or its function was
    not called."""


class CallResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The stored result of a call."""

    number: attempts.Count
    state: api_task.State
    """A final state, or Pending for an unknown task."""
    reason: str
    message: str
    payload: attempts.Payload | None = None


class Watched(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request for the result of `task`, to be returned under a `number` that the submitter has
    not used yet."""

    number: attempts.Count
    task: attempts.Id
