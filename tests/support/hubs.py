"""Dispatchers for tests: journal, logs and socket in one directory, one secret for all peers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import verifiers


def socket_of(directory: Path) -> Path:
    """Return the socket on which `running` listens."""
    return directory / "run" / "channel.sock"


def store(directory: Path, *, durable: bool) -> port.Store:
    return journal.Journal(directory / "journal.db") if durable else memory_store.MemoryStore()


def make(
    directory: Path,
    *,
    kept: port.Store | None = None,
    clock: clocks.Clock | None = None,
    secret: str = "secret",
    options: hub.HubOptions | None = None,
) -> hub.Hub:
    """Return a hub that has not started; `kept` is its store, by default the journal of the
    directory.
    """
    return hub.Hub(
        kept or store(directory, durable=True),
        clock=clock or clocks.SystemClock(),
        verifier=verifiers.OneSecret(secret),
        logs_dir=directory / "logs",
        entropy=ids.system_entropy(),
        options=options or hub.HubOptions(),
    )


@asynccontextmanager
async def running(
    directory: Path,
    *,
    kept: port.Store | None = None,
    clock: clocks.Clock | None = None,
    options: hub.HubOptions | None = None,
) -> AsyncIterator[hub.Hub]:
    dispatcher = make(directory, kept=kept, clock=clock, options=options)
    await dispatcher.start(socket_of(directory))
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


def view(dispatcher: hub.Hub, task: ids.TaskId) -> model.TaskView:
    """Return the view of a task that must exist."""
    found = dispatcher.view(task)
    assert found is not None
    return found
