"""`Task.map` and `TemplateTask.map`: submit many calls, with limits on open and failed calls.

Used by `sdk.task` and `sdk.templates`. Without limits all calls are submitted before `map` returns.
With `max_in_flight` the next call is submitted when an earlier one has finished, and its item is
taken from the iterable only then: an endless generator works, and `LimitedMap` is the sequence that
grows meanwhile. Not a pool: no call runs here.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from kilnwork.sdk import errors, futures, waiting

T = TypeVar("T")
Row = tuple[Any, ...]
Submit = Callable[[Row], futures.CallFuture[T]]


class Limits:
    """The limits of a map: the maximum numbers of open calls and of failed calls.

    `max_in_flight`: None: all calls may be open at once. `max_failed`: if more calls fail, the map
    stops; None: any number may fail. `of`: the name of the function or template, for error
    messages.
    """

    def __init__(self, *, of: str, max_in_flight: int | None, max_failed: int | None) -> None:
        self.of = of
        self.max_in_flight = max_in_flight
        self.max_failed = max_failed
        if max_in_flight is not None and not (type(max_in_flight) is int and max_in_flight >= 1):
            raise errors.BadOption(
                f"{of}: max_in_flight={max_in_flight!r}: must be an integer of at least 1, or None"
            )
        if max_failed is not None and not (type(max_failed) is int and max_failed >= 0):
            raise errors.BadOption(
                f"{of}: max_failed={max_failed!r}: must be an integer of at least 0, or None"
            )


def run(
    rows: Iterator[Row], submit: Submit[T], limits: Limits, *, in_background: bool
) -> futures.Futures[T]:
    """Submit a call for each row and return the futures of the calls.

    `in_background`: submit further calls even while the caller does nothing. False in a slot: there
    a call belongs to the running task, so only the task's own thread submits.
    """
    if limits.max_in_flight is None and limits.max_failed is None:
        return futures.Futures(submit(row) for row in rows)
    limited = LimitedMap(rows, submit, limits, in_background=in_background)
    limited.feed()
    if limited.broken is not None and not isinstance(limited.broken, errors.TooManyFailed):
        raise limited.broken  # failures of calls are raised at the end instead
    return limited


_Follower = tuple[Callable[[futures.Future[T]], object], Callable[[BaseException | None], object]]


class LimitedMap(futures.Futures[T]):
    """The futures of a map with limits, in order; the sequence may still grow.

    Iterating waits for the next call to be submitted; `len()` and pickling wait until all calls are
    submitted. If failures stopped the map before the iterable had ended, iteration ends with
    `TooManyFailed`.
    """

    def __init__(
        self, rows: Iterator[Row], submit: Submit[T], limits: Limits, *, in_background: bool
    ) -> None:
        super().__init__(())
        self.broken: BaseException | None = None
        self._rows = rows
        self._submit = submit
        self._limits = limits
        self._by_itself = in_background
        self._changed = threading.Condition()
        self._open: dict[int, futures.CallFuture[T]] = {}
        self._failed = 0
        self._feeding = False
        self._ended = False
        self._followers: list[_Follower[T]] = []

    def __len__(self) -> int:
        self._grow(None)
        return len(self._items)

    def __iter__(self) -> Iterator[futures.Future[T]]:
        for index in itertools.count():
            if not self._grow(index + 1):
                return
            yield self._items[index]

    @overload
    def __getitem__(self, index: int) -> futures.Future[T]: ...
    @overload
    def __getitem__(self, index: slice) -> futures.Futures[T]: ...
    def __getitem__(self, index: int | slice) -> futures.Future[T] | futures.Futures[T]:
        if isinstance(index, slice) or index < 0:
            self._grow(None)
        else:
            self._grow(index + 1)
        return super().__getitem__(index)

    def follow(
        self,
        found: Callable[[futures.Future[T]], object],
        ended: Callable[[BaseException | None], object],
    ) -> None:
        with self._changed:
            known, over = list(self._items), self._ended
            if not over:
                self._followers.append((found, ended))
        for each in known:
            found(each)
        if over:
            ended(self.broken)

    def advance(self) -> None:
        for index, future in list(self._open.items()):
            if future.done():
                self._over(index)
        self.feed()

    def __reduce__(self) -> tuple[Any, ...]:
        self._grow(None)
        return list, (list(self._items),)

    def __repr__(self) -> str:
        state = "all" if self._ended else "so far"
        return f"<Futures of {self._limits.of}: {len(self._items)} {state}, {self._failed} failed>"

    def feed(self) -> None:
        """Submit further calls up to the limit; return at once if another thread is submitting."""
        while self._has_room():  # repeat: a call may finish while `_feeding` is still set
            with self._changed:
                if self._feeding:
                    return
                self._feeding = True
            try:
                while self._has_room():
                    self._submit_next()
            except StopIteration:
                self._end(None)
            except BaseException as error:  # noqa: BLE001 - of the iterable, of submit: for readers
                self._end(error)
            finally:
                with self._changed:
                    self._feeding = False
                    self._changed.notify_all()

    def _has_room(self) -> bool:
        most = self._limits.max_in_flight
        return not self._ended and (most is None or len(self._open) < most)

    def _submit_next(self) -> None:
        future = self._submit(next(self._rows))
        with self._changed:
            index = len(self._items)
            self._open[index] = future
            self._items.append(future)
            followers = list(self._followers)
            self._changed.notify_all()
        for found, _ in followers:
            found(future)
        future.add_done_callback(lambda _: self._over(index))

    def _over(self, index: int) -> None:
        """Count a finished call once and submit the next call; called in any thread."""
        with self._changed:
            future = self._open.pop(index, None)
        if future is None:
            return
        if self._limits.max_failed is not None and not future.cancelled():
            error = future.exception()
            if error is not None:
                self._count(error)
        if self._by_itself:
            self.feed()

    def _count(self, error: BaseException) -> None:
        limit = self._limits.max_failed or 0
        with self._changed:
            self._failed += 1
            if self._failed != limit + 1:
                return
            rest = list(self._open.values())
            unasked = not self._ended
        if unasked:
            stopped = errors.TooManyFailed(
                f"the map of {self._limits.of} was stopped after {self._failed} failed calls "
                f"(max_failed={limit}): {len(self._items)} were submitted, the rest never"
            )
            stopped.__cause__ = error
            self._end(stopped)
        for future in rest:
            future.cancel(cause=error)

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended, self.broken = True, error
            followers = list(self._followers)
            self._changed.notify_all()
        for _, ended in followers:
            ended(error)

    def _grow(self, wanted: int | None) -> bool:
        """Wait until `wanted` calls are submitted; return False if the map ends with fewer calls.

        `wanted`: None: all calls of the map. Raises the error that ended the map before that.
        """
        while True:
            with self._changed:
                if wanted is not None and len(self._items) >= wanted:
                    return True
                if self._ended:
                    if self.broken is not None:
                        raise self.broken
                    return False
                some = dict(self._open)
                if not some and self._feeding:  # another thread is about to submit a call
                    self._changed.wait_for(lambda: self._open or not self._feeding)
                    continue
            if not some:
                self.feed()
                continue
            waiting.wait(some.values(), return_when="FIRST_COMPLETED")
            for index, future in some.items():
                if future.done():
                    self._over(index)
            self.feed()
