"""Starting the parts of a server one after the other, and stopping them last first.

Used by the composition roots and by the parts of the manager. What a part waits for is known by
name, for `/readyz`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger(__name__)

Say = Callable[[str], None]
Step = Callable[[], Awaitable[None]]
Explain = Callable[[], str | None]
"""What a part waits for in its own words, None when it waits for nothing that it knows."""


class Steps:
    """The parts of a server. Each start calls `then` with how to stop what it has started."""

    def __init__(self) -> None:
        self._starts: tuple[tuple[str, Step], ...] = ()
        self._stops: list[tuple[str, Step]] = []
        self._waiting_for: dict[str, str | None] = {}
        self._explained: dict[str, Explain] = {}
        self._say: Say = lambda text: None

    def plan(self, starts: Sequence[tuple[str, Step]]) -> None:
        """Name and start of each part, in order. Call it once, before `start`."""
        self._starts = tuple(starts)
        self._waiting_for = {name: "has not started" for name, _ in starts}

    def explain(self, name: str, explain: Explain) -> None:
        """Ask this too for what the part of that name waits for; it may know better."""
        self._explained[name] = explain

    def checks(self) -> dict[str, str | None]:
        """By name of each part: None when it is ready, else what it waits for."""
        own = {name: explain() for name, explain in self._explained.items()}
        return self._waiting_for | {name: text for name, text in own.items() if text}

    def then(self, name: str, stop: Step) -> None:
        """Stop this too, before everything that was started earlier."""
        self._stops.append((name, stop))

    async def start(self, *, say: Say) -> None:
        """Start all; whatever happens, call `stop` afterwards."""
        self._say = say
        for name, start in self._starts:
            say(f"starting: {name}")
            self._waiting_for[name] = "is starting"
            await start()
            self._waiting_for[name] = None

    def progress(self, name: str, text: str) -> None:
        """Say what a part does that is being started."""
        self._say(f"starting: {name}: {text}")
        self._waiting_for[name] = f"is starting: {text}"

    async def stop(self, *, say: Say) -> None:
        """Stop what has started, last first; a part that fails does not keep the others."""
        self._waiting_for |= dict.fromkeys(self._waiting_for, "is stopping")
        while self._stops:
            name, stop = self._stops.pop()
            say(f"stopping: {name}")
            try:
                await stop()
            except Exception:
                log.exception("part did not stop", extra={"part": name})

    def failed(self, name: str, error: BaseException) -> None:
        """A part has ended that never should."""
        self._waiting_for[name] = f"has failed: {error}"
