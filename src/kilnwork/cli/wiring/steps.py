"""Ordered start of the parts of a server, and their stop in reverse order.

Used by the composition roots and by the parts of the manager. For `/readyz` each part has a name
and says what it waits for.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger(__name__)

Say = Callable[[str], None]
Step = Callable[[], Awaitable[None]]
Explain = Callable[[], str | None]
"""Returns what a part waits for, or None if it does not know."""


class Steps:
    """Ordered steps that start and stop the parts of a server.

    Each start calls `then` with a function that stops what it has started.
    """

    def __init__(self) -> None:
        self._starts: tuple[tuple[str, Step], ...] = ()
        self._stops: list[tuple[str, Step]] = []
        self._waiting_for: dict[str, str | None] = {}
        self._explained: dict[str, Explain] = {}
        self._say: Say = lambda text: None

    def plan(self, starts: Sequence[tuple[str, Step]]) -> None:
        """Set the name and the start function of each part, in order. Call it once, before
        `start`.
        """
        self._starts = tuple(starts)
        self._waiting_for = {name: "has not started" for name, _ in starts}

    def explain(self, name: str, explain: Explain) -> None:
        """Add a function that explains in more detail what the part of that name waits for."""
        self._explained[name] = explain

    def checks(self) -> dict[str, str | None]:
        """Return for each part, by name, what it waits for, or None if the part is ready."""
        own = {name: explain() for name, explain in self._explained.items()}
        return self._waiting_for | {name: text for name, text in own.items() if text}

    def then(self, name: str, stop: Step) -> None:
        """Register a function that stops a part.

        At stop it is called before the functions that were registered earlier.
        """
        self._stops.append((name, stop))

    async def start(self, *, say: Say) -> None:
        """Start all parts of the server in order. Call `stop` afterwards, even if this fails."""
        self._say = say
        for name, start in self._starts:
            say(f"starting: {name}")
            self._waiting_for[name] = "is starting"
            await start()
            self._waiting_for[name] = None

    def progress(self, name: str, text: str) -> None:
        """Report what a part that is starting does at the moment."""
        self._say(f"starting: {name}: {text}")
        self._waiting_for[name] = f"is starting: {text}"

    async def stop(self, *, say: Say) -> None:
        """Stop the started parts of the server in reverse order.

        A part that fails to stop does not prevent the others from stopping.
        """
        self._waiting_for |= dict.fromkeys(self._waiting_for, "is stopping")
        while self._stops:
            name, stop = self._stops.pop()
            say(f"stopping: {name}")
            try:
                await stop()
            except Exception:
                log.exception("part did not stop", extra={"part": name})

    def failed(self, name: str, error: BaseException) -> None:
        """Report that a part of the server has ended unexpectedly."""
        self._waiting_for[name] = f"has failed: {error}"
