"""Streams: the futures of generators, whose values arrive while they run.

Used through `sdk.task`: `submit` of a generator function returns a `Stream`. Iterating over it
yields the values in order, as they arrive; `result()` is the list of all values. If the generator
fails, the iteration raises its error after the values before the failure. A retry starts the
generator from the beginning: values that were yielded before are not yielded again, since they are
assumed to be equal.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar, cast

from kilnwork.api import attempts
from kilnwork.channel import errors as channel_errors
from kilnwork.kit import ids
from kilnwork.sdk import futures, loop_wakeups, serialization

Y = TypeVar("Y")


class Stream(futures.CallFuture[list[Y]]):
    """The future of a generator: iterate it with `for` or `async for`, any number of times."""

    __slots__ = ("_arrivals", "_waiters")

    streams = True

    def __init__(self, session: futures.FutureOwner, number: int, task_id: ids.TaskId) -> None:
        super().__init__(session, number, task_id)
        self._arrivals: dict[int, attempts.Payload] = {}
        self._waiters: list[loop_wakeups.Waiter] = []

    def yielded(self, index: int, payload: attempts.Payload) -> None:
        self._arrivals.setdefault(index, payload)
        for waiter in tuple(self._waiters):
            waiter.wake()

    def __iter__(self) -> Iterator[Y]:
        index = 0
        while True:
            if index not in self._arrivals and not self.done():
                self._wait_for(index)
            if index not in self._arrivals:
                break
            yield self._unpacked(index)
            index += 1
        yield from self.result()[index:]

    async def __aiter__(self) -> AsyncIterator[Y]:
        index = 0
        while True:
            if index not in self._arrivals and not self.done():
                await self._arrival(index)
            if index not in self._arrivals:
                break
            yield self._unpacked(index)
            index += 1
        for value in self.result()[index:]:
            yield value

    def _wait_for(self, index: int) -> None:
        owner = self.owner()
        try:
            owner.block(
                lambda: index in self._arrivals or self.done(), None, futures.named(owner, (self,))
            )
        except channel_errors.ChannelError as error:
            raise futures.lost(error) from error

    async def _arrival(self, index: int) -> None:
        owner = self.owner()
        self._flush()
        while index not in self._arrivals and not self.done():
            waiter = loop_wakeups.Waiter()
            self._waiters.append(waiter)
            self.when_done(waiter.wake)
            owner.suspended(futures.named(owner, (self,)))
            try:
                if index not in self._arrivals:
                    await waiter
            finally:
                owner.resumed()
                self._waiters.remove(waiter)
                self.forget(waiter.wake)

    def _unpacked(self, index: int) -> Y:
        return cast(Y, serialization.unpack_value(self._arrivals[index], self.owner().blobs))

    def _name(self) -> str:
        return f"Stream {ids.task_text(self.known_task)}"
