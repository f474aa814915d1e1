"""The values that cross rooms about calls: Python functions run as tasks in slots, by the batch.

Used by channel, dispatch, sdk and worker alike; the bodies of their frames. A *call* is a task
whose spec has `call`. What many calls share (function, retry, timeouts, priority) is a *template*,
named once on each link by a number; a call carries only what is its own. Not collected by the
garbage collector: none of these can be in a cycle.
"""

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task


class Cache(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whether the result of an earlier call may be used. `key`: digest of function, code and
    arguments; `seconds`: the greatest age of that result."""

    key: attempts.Digest
    seconds: attempts.Seconds


class CallItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call that a submitter (a driver, or a slot for a running task) wants to run.

    `number`: of the submitter's session, from 1, rising by one; results come back under it. `task`:
    the id, chosen by the submitter (UUIDv7), so that it is known at once. `template`: the number of
    a Template sent before on this link. `needs`: tasks whose results the arguments hold as futures;
    the call waits until all are final. `key`: names the call for ever (for children, within the run
    of their parent). `ordinal`: without a key, the number of this call among the attempt's calls of
    the function, from 1; 0 for drivers. `parent`: slots only. `retry_failed`: if the call that
    `key` names failed before this session, it runs again, as it is asked for now. `cache`: None to
    run it whatever has run before.
    """

    number: attempts.Count
    task: attempts.Id
    template: attempts.Count
    arguments: attempts.Payload
    needs: tuple[attempts.Id, ...] = ()
    name: attempts.Label | None = None
    key: attempts.Label | None = None
    ordinal: attempts.Count = 0
    parent: attempts.AttemptRef | None = None
    retry_failed: bool = False
    cache: Cache | None = None


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a task that another one needs. `payload`: its result, or its error."""

    task: attempts.Id
    state: api_task.State
    reason: str
    message: str
    payload: attempts.Payload | None = None


class CallRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reserved attempt for a slot. `template`: sent before on this link.

    `values`: results of what it needs, as far as they fit; the slot watches the others.
    `in_place`: run it now, on top of the attempt that waits for it.
    """

    ref: attempts.AttemptRef
    template: attempts.Count
    arguments: attempts.Payload
    name: str
    values: tuple[Value, ...] = ()
    in_place: bool = False


class CallEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an attempt of a call ended.

    `payload`: the result of a success, the error of a failure. `started`: wall clock, seconds;
    `seconds`: how long it ran. `may_retry`: False when its exception is none of those that the task
    is to be retried for. `delegate`: it returned this task's future; its outcome becomes ours.
    `usage`: what it has used; None: a call of a slot that took less than a millisecond, or its
    function was not called.
    """

    ref: attempts.AttemptRef
    ending: attempts.Ending
    reason: attempts.Label
    message: str
    payload: attempts.Payload | None
    started: attempts.Seconds
    seconds: attempts.Seconds
    may_retry: bool = True
    delegate: attempts.Id | None = None
    usage: attempts.Usage | None = None


class CallResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The stored result of call `number`. `state` is final, or Pending for an unknown task."""

    number: attempts.Count
    state: api_task.State
    reason: str
    message: str
    payload: attempts.Payload | None = None


class Watched(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A submitter wants the result of `task` under `number`, which it has not used before."""

    number: attempts.Count
    task: attempts.Id
