"""A session: what submits calls and receives their results, over one link to a dispatcher.

Used by task functions and futures. `driver.Driver` is the one of users' processes, the worker's
slots have their own: both are a `Session`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kilnwork.api import attempts, task
from kilnwork.channel import client, messages
from kilnwork.data import blobs
from kilnwork.kit import ids
from kilnwork.sdk import futures

Sink = Callable[[int, attempts.Payload], None]
"""Is told what a generator yields: index (from 0), value. In whichever thread reads; be quick."""


class Session:
    """See the module."""

    in_slot = False
    namespace: str
    cluster: str
    blobs: blobs.Blobs

    def __init__(self, task_ids: ids.TaskIds, *, durable: bool = True) -> None:
        self.link: client.Link[Any]  # set by whoever makes both, before anything else is called

    def template(self, spec: task.TaskSpec) -> int:
        """The number of a template; told the dispatcher once per connection."""
        raise NotImplementedError

    def submit(  # noqa: PLR0913  one call of it per task: no bundle to build
        self,
        template: int,
        *,
        function: str,
        arguments: attempts.Payload,
        needs: tuple[ids.TaskId, ...] = (),
        name: str | None = None,
        key: str | None = None,
        sink: Sink | None = None,
    ) -> futures.Future[Any]:
        """Ask for a call."""
        raise NotImplementedError

    def future(self, task_id: ids.TaskId, *, sink: Sink | None = None) -> futures.Future[Any]:
        """The future of a task that exists."""
        raise NotImplementedError

    def cancel(self, tasks: Iterable[ids.TaskId], *, recursive: bool = True) -> None:
        """Kill these tasks."""
        raise NotImplementedError

    def block(
        self, done: Callable[[], bool], timeout_s: float | None, tasks: Sequence[ids.TaskId]
    ) -> bool:
        """Wait until `done()`; `tasks` are those it waits for. Slots override this."""
        return self.link.wait(done, timeout_s)

    def parent(self, function: str, *, keyed: bool) -> tuple[attempts.AttemptRef | None, int]:
        """Who submits: the running attempt and the ordinal, for slots."""
        return None, 0

    # what the owner of the link hands on

    def received(self, message: messages.ToDriver) -> None:
        """Accepted, FoundCall, Results, Streamed."""
        raise NotImplementedError

    def resume(
        self, message: messages.Attached
    ) -> list[messages.Template | messages.Submit | messages.Watch | messages.Cancel]:
        """What to send on a new connection."""
        raise NotImplementedError

    def gather(self) -> None:
        """Send the calls that were kept back to be sent together."""
        raise NotImplementedError

    def gone(self, error: Exception) -> None:
        """All open futures fail with this."""
        raise NotImplementedError

    def close(self) -> None:
        """Send what was submitted, then end the link."""
        raise NotImplementedError


def current() -> Session:
    """The innermost active session; raises `errors.NoSession`."""
    raise NotImplementedError


def activate(session: Session) -> None:
    """Make it the one that task functions submit to."""
    raise NotImplementedError


def deactivate(session: Session) -> None:
    """Undo `activate`."""
    raise NotImplementedError
