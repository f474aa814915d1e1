"""Background work as named coroutine tasks with an owner.

A `BackgroundWork` owns coroutine tasks; other modules create coroutine tasks only in an
`asyncio.TaskGroup`. If one raises an exception, it is logged and passed to `on_failure`, never
swallowed. Not a scheduler, not a queue.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


async def run_in_own_task(name: str, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in a coroutine task of its own, so that it cannot cancel the caller's
    task.
    """
    return await asyncio.create_task(work, name=name)


class BackgroundWork:
    """A set of named coroutine tasks that are stopped together.

    `on_failure(name, error)` is called when a coroutine task raises; by default the error is only
    logged.
    """

    def __init__(
        self, name: str, *, on_failure: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self.name = name
        self._on_failure = on_failure
        self._members: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine task, which runs until it ends or `stop` cancels it."""
        member = asyncio.create_task(work, name=f"{self.name}/{name}")
        self._members.add(member)
        member.add_done_callback(self._ended)
        return member

    def __len__(self) -> int:
        return len(self._members)

    async def wait(self, *, timeout_s: float) -> None:
        """Wait until all current coroutine tasks have ended, but at most `timeout_s`."""
        if self._members:
            await asyncio.wait(self._members, timeout=timeout_s)

    async def stop(self, *, timeout_s: float = 5.0) -> None:
        """Cancel all coroutine tasks and wait for them; log those that do not end within
        `timeout_s`.
        """
        members = [m for m in self._members if m is not asyncio.current_task()]
        for member in members:
            member.cancel()
        if not members:
            return
        _, late = await asyncio.wait(members, timeout=timeout_s)
        for member in late:
            log.error("coroutine task did not stop", extra={"coroutine": member.get_name()})

    def _ended(self, member: asyncio.Task[Any]) -> None:
        self._members.discard(member)
        if member.cancelled():
            return
        error = member.exception()
        if error is None:
            return
        log.error("coroutine task failed", exc_info=error, extra={"coroutine": member.get_name()})
        if self._on_failure is not None:
            self._on_failure(member.get_name(), error)
