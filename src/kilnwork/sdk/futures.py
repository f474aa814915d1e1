"""Futures: the results of calls, before they are there.

Used by everybody. A future knows its session, its task and, once that is final, how it ended; the
bytes of a result are unpacked when they are first asked for.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Future(Generic[T_co]):
    """The result of a call, whether it is there or not."""

    __slots__ = ("__weakref__",)

    @property
    def id(self) -> str:
        """The id of the task, a dashed UUID. Waits for the dispatcher only after a `key=`."""
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> T_co:
        """The value; raises what the task raised, TimeoutError after `timeout` seconds."""
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None."""
        raise NotImplementedError

    def done(self) -> bool:
        """True when the task is over."""
        raise NotImplementedError

    def cancelled(self) -> bool:
        """True when the task is over because it was cancelled."""
        raise NotImplementedError

    def cancel(self) -> bool:
        """Kill the task and all that it has spawned; False when it is over."""
        raise NotImplementedError

    def add_done_callback(self, fn: "Callable[[Future[T_co]], object]") -> None:
        """Call `fn(self)` when the task is over: in a thread of its own, at once if it is."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, T_co]:
        raise NotImplementedError

    def parts(self, count: int) -> "tuple[Future[Any], ...]":
        """Futures of the items of a result that is a tuple of `count`."""
        raise NotImplementedError


class Futures(Sequence[Future[T]]):
    """The futures of a map, in the order of its arguments."""

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


def rebuild(task: bytes, index: int | None) -> Any:
    """What a pickled future becomes."""
    raise NotImplementedError
