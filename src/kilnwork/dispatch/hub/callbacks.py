"""Results that others send for attempts which wait for them: handed to the executor that has each.

Used by the hub. Nothing is kept here: an executor that is away has not got it, and whoever sends it
is told to try again.
"""

import asyncio
import contextlib
from enum import Enum

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch.hub import commits, links, subscriptions


class Taken(Enum):
    """What has become of a result."""

    STORED = 1
    OVER = 2
    NOT_NOW = 3


class Callbacks:
    """See the module. `by_number`: the links of all peers."""

    def __init__(
        self,
        core: commits.Core,
        by_number: dict[int, links.Link],
        changes: subscriptions.Subscriptions,
    ) -> None:
        self._core = core
        self._links = by_number
        self._changes = changes

    async def call_back(
        self, ref: attempts.AttemptRef, *, media_type: str, body: bytes, wait_s: float
    ) -> Taken:
        """Hand a result to whoever has that attempt, and wait until that is over and stored."""
        if not self._is_held(ref):
            return Taken.OVER
        task = self._core.machine.task(ref.task)
        worker = None if task is None else task.worker
        link = None if worker is None else self._links.get(worker.link)
        if link is None:
            return Taken.NOT_NOW
        changed = asyncio.Event()
        stop = self._changes.follow({ref.task}, lambda _: changed.set())
        try:
            link.write_all([messages.Callback(ref, media_type, body)])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while self._is_held(ref):
                        changed.clear()
                        await changed.wait()
                    await self._core.flush()
        finally:
            stop()
        return Taken.NOT_NOW if self._is_held(ref) else Taken.STORED

    def _is_held(self, ref: attempts.AttemptRef) -> bool:
        task = self._core.machine.task(ref.task)
        return task is not None and task.held and task.ref == ref
