"""Futures: handles for the results of calls that may not have finished.

Used by programs and by most modules of the SDK. A future refers to its session, its task and, once
that has finished, its outcome; the bytes of a result are unpacked when the result is first asked
for. The thread that reads the session's link settles the future; no future has a lock or a thread
of its own. Functions for many futures are in `waiting`.

Settling and waiting need no lock: `settle` writes `_end` first and then takes the callbacks;
`when_done` adds its callback first and then checks `_end`; since `list.pop` is atomic, exactly one
of them takes each callback.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from kilnwork.api import attempts, calls, task
from kilnwork.channel import errors as channel_errors
from kilnwork.kit import ids
from kilnwork.sdk import callbacks, errors, loop_wakeups, serialization, session_stack

T = TypeVar("T")
S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)

VALUE, ERROR, CANCELLED, READY, FAILING = range(1, 6)
"""States of a future that has ended, besides a `CallResult` that is not unpacked yet. VALUE:
`_value` is the result; ERROR, CANCELLED: `_value` is the error; READY: the result, or an error, is
still to be computed by `_compute`; FAILING: the error is still to be computed."""

TASKS_NAMED = 1000
"""Maximum number of awaited tasks whose ids are passed to a session."""

Hook = Callable[["Future[Any]"], object]


class FutureOwner(Protocol):
    """The methods of a session that futures call; see `session.Session`."""

    blobs: Any
    link: Any
    in_slot: bool

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool: ...
    def confirm(self, number: int) -> None: ...
    def cancel(self, tasks: Iterable[ids.TaskId], *, recursive: bool) -> None: ...
    def retry(
        self, task_id: ids.TaskId, *, failed: bool, started: bool = False
    ) -> "CallFuture[Any]": ...
    def suspended(self, tasks: Sequence[ids.TaskId]) -> None: ...
    def resumed(self) -> None: ...
    def call_back(self, callback: Callable[[Any], object], future: Any) -> None: ...


class Future(Generic[T_co]):
    """The result of a call that may not have finished; `submit`, `map` and `kiln.future` return
    futures.
    """

    __slots__ = ("__weakref__", "_end", "_hooks", "_value")

    def __init__(self) -> None:
        self._end: calls.CallResult | int | None = None
        self._hooks: list[Hook] | None = None
        self._value: Any = None

    @property
    def id(self) -> str:
        """The id of the task, a dashed UUID; `kiln.future(id)` finds the task from any process.

        The id is available at once, with two exceptions: a call with a `key=`, and a call that a
        task submits in a later run or attempt than its first. An earlier task may stand for such a
        call, so this property waits until the dispatcher reports which task it is. The call is sent
        before the id is returned, so that another process that gets the id finds the task. Raises
        AttributeError for a future of `gather`, which is not one task.
        """
        text = ids.task_text(self.task)
        if self._end is None:
            self._flush()
        return text

    @property
    def task(self) -> ids.TaskId:
        """The id of the task as 16 bytes; see `id`."""
        raise AttributeError("this future is not one task: ask those that it was made of")

    def result(self, timeout: float | None = None) -> T_co:
        """Wait for the result and return it. Raises the exception of the task, or a `TaskError`.

        Raises TimeoutError after `timeout` seconds; the task continues.
        """
        try:
            if self._end is None:
                self._wait(timeout)
            if self._end is not VALUE:
                self._open()
                if self._end is not VALUE:
                    raise self._value
            return cast(T_co, self._value)
        finally:
            del self  # the traceback of a raised error must not keep the future alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the task has finished; return the exception that `result` would raise, or
        None.

        Raises TimeoutError after `timeout` seconds.
        """
        if self._end is None:
            self._wait(timeout)
        if not self.failed():
            return None
        self._open()
        return cast(BaseException, self._value)

    def done(self) -> bool:
        """Return whether the task has finished: succeeded, failed or cancelled."""
        return self._end is not None

    def failed(self) -> bool:
        """Return whether the task has finished without a result."""
        end = self._end
        if isinstance(end, calls.CallResult):
            return end.state is not task.State.SUCCESS
        return end in (ERROR, CANCELLED, FAILING)

    def cancelled(self) -> bool:
        """Return whether the task has finished because it was cancelled."""
        end = self._end
        if isinstance(end, calls.CallResult):
            return end.state is task.State.KILLED
        return end == CANCELLED

    def cancel(self, *, recursive: bool = True) -> bool:
        """Cancel the task, whether it waits or runs; return False if it has finished already.

        `recursive`: also cancel all tasks that the task has spawned (default: True, since no other
        task waits for them). `done()` returns True once every process that the task started has
        ended.
        """
        raise NotImplementedError

    def retry(self) -> "Future[T_co]":
        """Run the task and the failed tasks around it again; return the future of the new run.

        The tasks that run again, in dependency order, are its failed inputs, the failed tasks that
        take its result, and the task that spawned it if that failed. Results of other tasks are
        reused: children that succeeded are not spawned again.

        Raises ConfigurationError if the task has not finished, or has succeeded.
        """
        return self._retried(started=False)

    def _retried(self, *, started: bool) -> "Future[T_co]":
        """Retry as `retry` does; with `started`, accept a task that is already running again."""
        raise NotImplementedError

    def add_done_callback(self, fn: "Callable[[Future[T_co]], object]") -> None:
        """Call `fn(self)` now if the task has finished, else in the callback thread when it
        finishes.

        Exceptions that `fn` raises are logged.
        """
        if self._end is not None:
            callbacks.call(fn, self)
            return
        self._flush()
        self.when_done(lambda future: future.owner().call_back(fn, future))

    def when_done(self, hook: Hook) -> None:
        """Call `hook(self)` once the future is done, in the thread that settles it.

        If the future is done already, the hook is called at once, in the calling thread. Unlike a
        callback of `add_done_callback` the hook must be quick and must not raise. After a Ctrl-C it
        may be called a second time.
        """
        hooks = self._hooks
        if hooks is None:
            with _adding:
                hooks = self._hooks
                if hooks is None:
                    hooks = self._hooks = []
        hooks.append(hook)
        if self._end is not None:
            self._call(hooks)

    def forget(self, hook: Hook) -> None:
        """Remove a hook that `when_done` added; does nothing if it is no longer there."""
        if self._hooks:
            try:
                self._hooks.remove(hook)
            except ValueError:
                return

    def settle(self, end: calls.CallResult | int, value: Any = None) -> None:
        """Set the outcome and call the hooks; may be called from any thread.

        Only the first outcome counts.
        """
        if self._end is None:
            if value is not None:
                self._value = value
            self._end = end
        if self._hooks:
            self._call(self._hooks)

    def pending(self) -> Iterable[ids.TaskId]:
        """Return the ids of the tasks that this future waits for."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, T_co]:
        if self._end is None:
            self._flush()
            waiter = loop_wakeups.Waiter()
            self.when_done(waiter.wake)
            owner = self.owner()
            owner.suspended(named(owner, (self,)))
            try:
                yield from waiter.__await__()
            finally:
                owner.resumed()
                self.forget(waiter.wake)
        return self.result()

    def __repr__(self) -> str:
        states = {None: "pending", CANCELLED: "cancelled"}
        end = CANCELLED if self.cancelled() else self._end
        state = states.get(end if end is None or isinstance(end, int) else VALUE)
        return f"<{self._name()} {state or ('failed' if self.failed() else 'done')}>"

    def _call(self, hooks: list[Hook]) -> None:
        while hooks:
            try:
                hook = hooks.pop(0)
            except IndexError:
                return
            try:
                hook(self)
            except BaseException:  # Ctrl-C: the future will be settled again
                hooks.insert(0, hook)
                raise

    def _wait(self, timeout: float | None) -> None:
        owner = self.owner()
        try:
            if owner.block(self.done, timeout, named(owner, (self,))):
                return
        except channel_errors.ChannelError as error:
            raise lost(error) from error
        raise TimeoutError(f"{self!r} after {timeout:g} s")

    def _open(self) -> None:
        """Unpack the outcome into the result or the error, once. Raises the errors of unpacking."""
        end = self._end
        if end in (VALUE, ERROR, CANCELLED):
            return
        opened, value = self._compute(end)
        with _adding:
            if self._end is end:
                self._value, self._end = value, opened

    def _compute(self, end: calls.CallResult | int | None) -> tuple[int, Any]:
        raise NotImplementedError

    def owner(self) -> FutureOwner:
        raise NotImplementedError

    def _flush(self) -> None:
        self.owner().link.flush()

    def _name(self) -> str:
        return type(self).__name__


_adding = threading.Lock()


def _after_fork() -> None:
    global _adding
    _adding = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class CallFuture(Future[T_co]):
    """The future of one task.

    `known_task`: the id of the task, which the dispatcher may still replace; see `task`.
    """

    __slots__ = ("_number", "_session", "known_task")

    streams = False
    """Whether the future receives the values of a generator while the generator runs."""

    def __init__(self, session: FutureOwner, number: int, task_id: ids.TaskId) -> None:
        self._end = None
        self._hooks = None
        self._value = None
        self._session = session
        self._number = number
        self.known_task = task_id

    @property
    def task(self) -> ids.TaskId:
        self._session.confirm(self._number)
        return self.known_task

    def found(self, task_id: ids.TaskId) -> None:
        """Replace the id by that of the earlier task that the key of the call already names."""
        self.known_task = task_id

    def yielded(self, index: int, payload: attempts.Payload) -> None:
        """Store the value at `index` of a generator, counted from 0.

        Called in the thread that reads the link, possibly twice for the same value.
        """

    def cancel(self, *, recursive: bool = True, cause: BaseException | None = None) -> bool:
        """Cancel as `Future.cancel` does.

        `cause`: the cause of the `Cancelled` that `result` then raises.
        """
        if self._end is not None:
            return False
        self._value = cause
        try:
            self._session.cancel((self.task,), recursive=recursive)
        except errors.DispatcherLost:
            if self.done():  # settled by the loss: another thread closed the session
                return False
            raise
        return True

    def _retried(self, *, started: bool) -> "Future[T_co]":
        return self._session.retry(self.task, failed=True, started=started)

    def parts(self, count: int) -> "tuple[Future[Any], ...]":
        """Return the futures of the items of a result that is a tuple of `count` items."""
        return tuple(PartFuture(self, index) for index in range(count))

    def part(self, index: int | None) -> "Future[Any]":
        """Return the future of one item of the result, or of the whole result for None."""
        return self if index is None else PartFuture(self, index)

    def pending(self) -> Iterable[ids.TaskId]:
        return () if self._end is not None else (self.task,)

    def __reduce__(self) -> tuple[Any, ...]:
        task_id = self.task
        serialization.note(task_id)
        return rebuild, (task_id, None)

    def _compute(self, end: calls.CallResult | int | None) -> tuple[int, Any]:
        end = cast(calls.CallResult, end)
        if end.state is task.State.SUCCESS:
            if end.payload is None:
                return VALUE, None
            return VALUE, serialization.unpack_value(end.payload, self._session.blobs)
        if not end.state.final:
            return ERROR, LookupError(
                f"no task {ids.task_text(self.known_task)} here: it was never submitted to this "
                "dispatcher, or it is over and forgotten"
            )
        error = serialization.failure(
            self.known_task,
            state=end.state,
            reason=end.reason,
            message=end.message,
            payload=end.payload,
        )
        if end.state is not task.State.KILLED:
            return ERROR, error
        if isinstance(self._value, BaseException):
            error.__cause__ = self._value
        return CANCELLED, error

    def owner(self) -> FutureOwner:
        return self._session

    def _name(self) -> str:
        return f"Future {ids.task_text(self.known_task)}"


class PartFuture(Future[T_co]):
    """The future of one item of a call's result, for calls that return several items."""

    __slots__ = ("_index", "_whole")

    def __init__(self, whole: CallFuture[Any], index: int) -> None:
        super().__init__()
        self._whole = whole
        self._index = index
        whole.when_done(self._whole_is_done)

    @property
    def task(self) -> ids.TaskId:
        return self._whole.task

    def cancel(self, *, recursive: bool = True) -> bool:
        return self._whole.cancel(recursive=recursive)

    def _retried(self, *, started: bool) -> Future[T_co]:
        return PartFuture(cast(CallFuture[Any], self._whole._retried(started=started)), self._index)

    def cancelled(self) -> bool:
        return self._whole.cancelled()

    def pending(self) -> Iterable[ids.TaskId]:
        return self._whole.pending()

    def __reduce__(self) -> tuple[Any, ...]:
        task_id = self._whole.task
        serialization.note(task_id)
        return rebuild, (task_id, self._index)

    def _whole_is_done(self, whole: Future[Any]) -> None:
        self.settle(FAILING if whole.failed() else READY)

    def _compute(self, end: calls.CallResult | int | None) -> tuple[int, Any]:
        if end == FAILING:
            return ERROR, self._whole.exception()
        return VALUE, self._whole.result()[self._index]

    def owner(self) -> FutureOwner:
        return self._whole.owner()

    def _name(self) -> str:
        return f"{self._whole._name()}[{self._index}]"


class Futures(Sequence[Future[T]]):
    """The futures of a map, in the order of its arguments.

    As an argument of a call, a `Futures` becomes the list of the results.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Future[T]]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Future[T]: ...
    @overload
    def __getitem__(self, index: slice) -> "Futures[T]": ...
    def __getitem__(self, index: int | slice) -> "Future[T] | Futures[T]":
        return Futures(self._items[index]) if isinstance(index, slice) else self._items[index]

    # No `__radd__`: with it `a_list += futures` would make a Futures of the list.
    def __add__(self, other: "Sequence[Future[S]]") -> "Futures[T | S]":
        """Return the futures of both sequences, as `+` does for lists.

        Waits until a map with limits has submitted all calls.
        """
        joined: Futures[T | S] | None = _joined(self, other)
        return NotImplemented if joined is None else joined

    def follow(
        self,
        found: "Callable[[Future[T]], object]",
        ended: Callable[[BaseException | None], object],
    ) -> None:
        """Call `found` for each future, and then `ended` with the error that ended the map, or
        None.

        A map with limits grows: `found` is called when a further call is submitted, in any thread.
        """
        for each in self._items:
            found(each)
        ended(None)

    def advance(self) -> None:
        """Submit as many further calls as the limits allow, if this is a map with limits."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._items,)

    def __repr__(self) -> str:
        done = sum(1 for each in self._items if each.done())
        return f"<Futures: {done} of {len(self._items)} done>"


def _joined(*parts: Sequence[Future[Any]]) -> Futures[Any] | None:
    """Return the futures of several sequences, or None if one of them is not a sequence of
    futures.
    """
    items: list[Future[Any]] = []
    for part in parts:
        if not isinstance(part, Futures | list | tuple):
            return None
        items += part
    return Futures(items) if all(isinstance(each, Future) for each in items) else None


def named(owner: FutureOwner, waited: Iterable[Future[Any]]) -> Sequence[ids.TaskId]:
    """Return the ids of the tasks that these futures wait for, to pass to `owner.block`.

    At most TASKS_NAMED ids for the session of a slot; none for other owners, which do not use them.
    """
    if not owner.in_slot:
        return ()
    return tuple(islice(chain.from_iterable(each.pending() for each in waited), TASKS_NAMED))


def lost(error: Exception) -> errors.KilnError:
    """Return the error that users see after the link has ended with `error`."""
    if isinstance(error, channel_errors.LinkForked):
        return errors.NoSession(
            "this process was forked from the one that opened the session, and cannot use it: "
            "open one here with kiln.start() or kiln.connect(), or start processes with "
            'multiprocessing.get_context("spawn")'
        )
    if isinstance(error, errors.DispatcherLost):
        return error
    lost = errors.DispatcherLost(
        f"{error}. What the dispatcher has accepted goes on without us if it is durable: "
        "kiln.future(id) finds it again"
    )
    lost.__cause__ = error
    return lost


def rebuild(task_id: bytes, index: int | None) -> Any:
    """Unpickle a future: in the arguments of a call as its value, elsewhere as a future."""
    resolve = serialization.resolver()
    if resolve is not None:
        return resolve(ids.TaskId(task_id), index)
    return session_stack.innermost().future(ids.TaskId(task_id)).part(index)
