"""Waiting for many futures: `gather`, `wait`, `as_completed`. Each costs O(1) per completion."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from kilnwork.sdk import futures

T = TypeVar("T")
ReturnWhen = Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"]


class DoneAndNotDone(NamedTuple, Generic[T]):
    """What `wait` returns."""

    done: set[futures.Future[T]]
    not_done: set[futures.Future[T]]


def gather(
    *items: "futures.Future[Any]", return_exceptions: bool = False
) -> "futures.Future[list[Any]]":
    """One future of all results, in order."""
    raise NotImplementedError


def wait(
    items: "Iterable[futures.Future[T]]",
    timeout: float | None = None,
    return_when: ReturnWhen = "ALL_COMPLETED",
) -> DoneAndNotDone[T]:
    """Wait for futures: (done, not_done)."""
    raise NotImplementedError


class Completions(Generic[T]):
    """Futures in the order in which they complete, for `for` and `async for`."""

    def __iter__(self) -> "Iterator[futures.Future[T]]":
        raise NotImplementedError

    def __aiter__(self) -> "AsyncIterator[futures.Future[T]]":
        raise NotImplementedError


def as_completed(
    items: "Iterable[futures.Future[T]]", timeout: float | None = None
) -> Completions[T]:
    """Futures in the order in which they complete."""
    raise NotImplementedError
