"""Functions that wait for many futures: `gather`, `wait`, `as_completed`. Public as
`kilnwork.NAME`.

Nothing polls: each future notifies the waiter once when it ends, at a cost that does not depend on
the number of futures. The futures may belong to several sessions. After the wait, futures that are
still open no longer notify the waiter.
"""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from kilnwork.channel import errors as channel_errors
from kilnwork.kit import clock, ids
from kilnwork.sdk import futures, loop_wakeups
from kilnwork.sdk import progress as progress_line

T = TypeVar("T")

ReturnWhen = Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"]
ALL_COMPLETED: Literal["ALL_COMPLETED"] = "ALL_COMPLETED"
FIRST_COMPLETED: Literal["FIRST_COMPLETED"] = "FIRST_COMPLETED"
FIRST_EXCEPTION: Literal["FIRST_EXCEPTION"] = "FIRST_EXCEPTION"
"""Values of `return_when`, as in `concurrent.futures`."""

_clock = clock.SystemClock()


class DoneAndNotDone(NamedTuple, Generic[T]):
    """The result of `wait`: `done, not_done = kiln.wait(…)`."""

    done: set[futures.Future[T]]
    not_done: set[futures.Future[T]]


def gather(
    *items: futures.Future[T], return_exceptions: bool = False, progress: bool = False
) -> futures.Future[list[T]]:
    """Return a future of the list of the results of several futures, in the order of the arguments.

    Like any other future it can be awaited, passed to a task and returned from one. Its error is
    the first failure, as soon as that is known, and the other tasks continue; with
    `return_exceptions`, errors are items of the list. `progress`: show the progress on a terminal
    or in a notebook until all futures are done.
    """
    gathered = Gathered(_futures_only(items, "gather"), return_exceptions=return_exceptions)
    if progress:
        progress_line.show(futures.Futures(items), "gather")
    return gathered


def wait(
    items: Iterable[futures.Future[T]],
    timeout: float | None = None,
    return_when: ReturnWhen = ALL_COMPLETED,
) -> DoneAndNotDone[T]:
    """Wait for the futures, at most `timeout` seconds; return (done, not_done).

    Errors of tasks are not raised. `return_when`: ALL_COMPLETED, FIRST_COMPLETED, or
    FIRST_EXCEPTION, which also returns when all are done.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(
            f"return_when={return_when!r}: must be kiln.ALL_COMPLETED, kiln.FIRST_COMPLETED or "
            "kiln.FIRST_EXCEPTION"
        )
    wanted = dict.fromkeys(_futures_only(_several(items, "wait"), "wait"))
    arrivals = _Arrivals(wanted)
    need = 1 if return_when == FIRST_COMPLETED else len(wanted)
    first_exception = return_when == FIRST_EXCEPTION

    def enough() -> bool:
        return len(arrivals.ready) >= need or (first_exception and arrivals.failures > 0)

    try:
        arrivals.block(enough, timeout, first=return_when == FIRST_COMPLETED)
    finally:
        arrivals.close()
    done = {each for each in wanted if each.done()}
    return DoneAndNotDone(done, wanted.keys() - done)


def as_completed(
    items: Iterable[futures.Future[T]], timeout: float | None = None, *, progress: bool = False
) -> "Completions[T]":
    """Return an iterable of the futures in the order in which they end, for `for` and `async for`.

    Raises TimeoutError if the futures have not all ended `timeout` seconds from now. `progress`:
    show the progress on a terminal or in a notebook during the iteration.
    """
    return Completions(_several(items, "as_completed"), timeout, progress=progress)


class Gathered(futures.Future[list[T]]):
    """The future that `gather` returns."""

    __slots__ = ("_first_failure", "_items", "_return_exceptions", "_session", "_waited")

    def __init__(self, items: Iterable[futures.Future[T]], *, return_exceptions: bool) -> None:
        super().__init__()
        self._items = tuple(items)
        self._return_exceptions = return_exceptions
        self._first_failure: futures.Future[T] | None = None
        self._waited = set(self._items)
        owners = {id(owner): owner for owner in _owners(self._items)}
        self._session = next(iter(owners.values()), None)
        if len(owners) > 1 and self._session is not None:
            wake = self._session.link.wake
            self.when_done(lambda _: wake())
        if not self._items:
            self.settle(futures.READY)
        for each in list(self._waited):
            each.when_done(self._arrived)

    def cancel(self, *, recursive: bool = True) -> bool:
        asked = [each.cancel(recursive=recursive) for each in self._items]
        return True in asked

    def _retried(self, *, started: bool) -> "Gathered[T]":
        """Retry the failed tasks.

        A task may already be running again because a task before it was retried.
        """
        again = [each._retried(started=True) if each.failed() else each for each in self._items]
        return Gathered(again, return_exceptions=self._return_exceptions)

    def pending(self) -> Iterable[ids.TaskId]:
        for each in self._items:
            if not each.done():
                yield from each.pending()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (list(self._items), self._return_exceptions)

    def _arrived(self, each: futures.Future[T]) -> None:
        if each.failed() and not self._return_exceptions:
            if self._first_failure is None:
                self._first_failure = each
            self.settle(futures.FAILING)
            return
        self._waited.discard(each)
        if not self._waited and self._first_failure is None:
            self.settle(futures.READY)

    def _compute(self, end: Any) -> tuple[int, Any]:
        first = self._first_failure
        if first is not None:
            kind = futures.CANCELLED if first.cancelled() else futures.ERROR
            return kind, first.exception()
        if self._return_exceptions:
            return futures.VALUE, [each.exception() or each.result() for each in self._items]
        return futures.VALUE, [each.result() for each in self._items]

    def owner(self) -> futures.FutureOwner:
        if self._session is None:
            raise RuntimeError("an empty gather waits for nothing")
        return self._session

    def _name(self) -> str:
        return f"gather of {len(self._items)}"


def rebuild(items: list[Any], return_exceptions: bool) -> Any:  # noqa: FBT001  called by pickle
    """Unpickle a `gather`: in the arguments of a call as a list of values, elsewhere as a
    `gather`.
    """
    if not any(isinstance(each, futures.Future) for each in items):
        return items
    return Gathered(items, return_exceptions=return_exceptions)


class Completions(Generic[T]):
    """An iterable that yields futures as they end. Iterate it once, by `for` or by `async for`."""

    def __init__(
        self, items: Iterable[futures.Future[T]], timeout: float | None, *, progress: bool = False
    ) -> None:
        self._arrivals = _Arrivals(items)
        self._progress = progress
        self._until = None if timeout is None else _clock.monotonic() + timeout

    def __iter__(self) -> Iterator[futures.Future[T]]:
        arrivals = self._arrivals
        try:
            with self._shown():
                while arrivals.more():
                    if not arrivals.block(arrivals.news, self._left_s(), first=True):
                        raise self._late()
                    if arrivals.ready:
                        yield arrivals.take()
        finally:
            arrivals.close()

    async def __aiter__(self) -> AsyncIterator[futures.Future[T]]:
        arrivals = self._arrivals
        try:
            with self._shown():
                while arrivals.more():
                    if not arrivals.news() and not await arrivals.suspend(self._left_s()):
                        raise self._late()
                    if arrivals.ready:
                        yield arrivals.take()
        finally:
            arrivals.close()

    def _shown(self) -> contextlib.AbstractContextManager[object]:
        if not self._progress:
            return contextlib.nullcontext()
        return progress_line.show(self._arrivals.items, "as_completed")

    def _left_s(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - _clock.monotonic())

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self._arrivals.left} futures are not done")


class _Arrivals(Generic[T]):
    """A queue of futures in the order in which they end, with those that have not ended.

    `ready`: the futures that have ended and were not taken. `left`: the number of all futures that
    were not taken. The futures of a map with limits are added one by one, in any thread; `_growing`
    is True until the map has ended.
    """

    def __init__(self, items: Iterable[futures.Future[T]]) -> None:
        self.ready: deque[futures.Future[T]] = deque()
        self.failures = 0
        self._waiter: loop_wakeups.Waiter | None = None
        self._pending: dict[futures.Future[T], None] = {}
        self._seen: set[futures.Future[T]] = set()
        self._owner: futures.FutureOwner | None = None
        self._growing = True
        self._broken: BaseException | None = None
        self._map = items if isinstance(items, futures.Futures) else futures.Futures(items)
        self._map.follow(self._found, self._ended)

    @property
    def items(self) -> futures.Futures[T]:
        """All futures of the wait."""
        return self._map

    @property
    def left(self) -> int:
        return len(self._pending)

    def more(self) -> bool:
        """Return whether there is a future to take, now or later.

        Raises the error that ended a map.
        """
        if not self.ready:
            self._map.advance()
        if self._pending or self._growing:
            return True
        if self._broken is not None:
            raise self._broken
        return False

    def news(self) -> bool:
        """Return whether the caller need not wait: a future can be taken, or no more are coming."""
        return bool(self.ready) or not (self._pending or self._growing)

    def take(self) -> futures.Future[T]:
        """Remove and return the next future that has ended."""
        future = self.ready.popleft()
        del self._pending[future]
        return future

    def block(self, enough: Callable[[], bool], timeout_s: float | None, *, first: bool) -> bool:
        """Wait until `enough()` returns True; return False after `timeout_s` seconds.

        `first`: whether a single further future is enough.
        """
        owner = self._owner
        if owner is None or enough():
            return enough()
        try:
            waited = list(self._pending) if owner.in_slot else []
            any_task = first and not any(isinstance(each, Gathered) for each in waited)
            tasks = futures.named(owner, waited)
            return owner.block(enough, timeout_s, tasks, first=any_task)
        except channel_errors.ChannelError as error:
            raise futures.lost(error) from error

    async def suspend(self, timeout_s: float | None) -> bool:
        """Wait in a coroutine until `news` returns True; return False after `timeout_s` seconds."""
        owner, now = self._owner, loop_wakeups.running().time
        until = None if timeout_s is None else now() + timeout_s
        while owner is not None and not self.news() and (until is None or now() < until):
            await self._sleep(owner, until)
        return self.news()

    async def _sleep(self, owner: futures.FutureOwner, until: float | None) -> None:
        """Sleep until the next wake-up, or until the time `until`.

        A wake-up may come late, for a future that was taken before this sleep began: the thread
        that settles it reads `_waiter` after it has filled `ready`.
        """
        waiter = self._waiter = loop_wakeups.Waiter()
        timer = None if until is None else loop_wakeups.running().call_at(until, waiter.wake)
        try:
            if not self.news():
                owner.link.flush()
                owner.suspended(futures.named(owner, list(self._pending)))
                try:
                    await waiter
                finally:
                    owner.resumed()
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Stop the notifications of futures; called when no caller waits any more."""
        for each in list(self._pending):
            each.forget(self._arrived)

    def _found(self, future: futures.Future[T]) -> None:
        if not isinstance(future, futures.Future):
            raise _no_future(future, "as_completed")
        if future in self._pending or future in self._seen:
            return
        self._pending[future] = None
        if self._owner is None and not (future.done() and isinstance(future, Gathered)):
            self._owner = future.owner()
        future.when_done(self._arrived)

    def _ended(self, error: BaseException | None) -> None:
        self._growing, self._broken = False, error
        self._tell()
        if self._owner is not None:
            self._owner.link.wake()

    def _arrived(self, future: futures.Future[T]) -> None:
        if future in self._seen:
            return
        self._seen.add(future)
        self.ready.append(future)
        if future.failed():
            self.failures += 1
        self._tell()
        if self._owner is not None and self._owner is not future.owner():
            self._owner.link.wake()

    def _tell(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.wake()


def _owners(items: Iterable[futures.Future[Any]]) -> Iterator[futures.FutureOwner]:
    return (each.owner() for each in items if not each.done())


def _several(items: Iterable[futures.Future[T]], of: str) -> Iterable[futures.Future[T]]:
    if isinstance(items, futures.Future):
        raise TypeError(f"{of} takes futures in a list, not one: write {of}([future])")
    return items


def _futures_only(items: Iterable[futures.Future[T]], of: str) -> Iterator[futures.Future[T]]:
    for each in items:
        if not isinstance(each, futures.Future):
            raise _no_future(each, of)
        yield each


def _no_future(item: object, of: str) -> TypeError:
    kind = type(item).__name__
    advice = ""
    if hasattr(item, "submit"):
        advice = ": submit it, and give what that returns"
    elif isinstance(item, Iterable) and of == "gather":
        advice = ": write gather(*…) with a star, which takes it apart"
    return TypeError(
        f"{of} takes futures, not {'an' if kind[0] in 'aeiou' else 'a'} {kind}{advice}"
    )
