"""Starting the parts of a server one after the other, and stopping them last first.

Used by the wirings of `up` and `manager`. What a part waits for is known by name, for `/readyz`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger(__name__)

Say = Callable[[str], None]
Step = Callable[[], Awaitable[None]]


class Steps:
    """The parts of a server. `starts`: name and start of each, in order.

    Each start calls `then` with how to stop what it has started.
    """

    def __init__(self, starts: Sequence[tuple[str, Step]]) -> None:
        self._starts = tuple(starts)
        self._stops: list[tuple[str, Step]] = []
        self.waiting_for: dict[str, str | None] = {n: "has not started" for n, _ in starts}
        """By name of each part: None when it is ready, else what it waits for."""

    def then(self, name: str, stop: Step) -> None:
        """Stop this too, before everything that was started earlier."""
        self._stops.append((name, stop))

    async def start(self, *, say: Say) -> None:
        """Start all; whatever happens, call `stop` afterwards."""
        for name, start in self._starts:
            say(f"starting: {name}")
            self.waiting_for[name] = "is starting"
            await start()
            self.waiting_for[name] = None

    async def stop(self, *, say: Say) -> None:
        """Stop what has started, last first; a part that fails does not keep the others."""
        self.waiting_for |= dict.fromkeys(self.waiting_for, "is stopping")
        while self._stops:
            name, stop = self._stops.pop()
            say(f"stopping: {name}")
            try:
                await stop()
            except Exception:
                log.exception("part did not stop", extra={"part": name})

    def failed(self, name: str, error: BaseException) -> None:
        """A part has ended that never should."""
        self.waiting_for[name] = f"has failed: {error}"
