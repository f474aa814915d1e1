"""A manager behind TLS, a wire to it, a worker at its end; and drivers on the manager's machine."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from kilnwork.channel import client
from kilnwork.sdk import driver
from support import far_manager, wires, worker_process

_TESTS = Path(__file__).parents[1]


class House:
    """See the module. Slots find the modules of tests."""

    def __init__(self, directory: Path, manager: far_manager.FarManager, wire: wires.Wire) -> None:
        self.manager = manager
        self.wire = wire
        self.worker = worker_process.WorkerProcess(
            directory,
            channel=Path("/nowhere"),
            KILN_CHANNEL=f"tls://localhost:{wire.port}",
            KILN_CA_FILE=str(manager.ca),
            KILN_PYTHONPATH=f"{_TESTS.parent}:{_TESTS}",
        )

    @contextlib.contextmanager
    def driver(self) -> Iterator[driver.Driver]:
        """In a thread: it blocks."""
        opened = driver.Driver(
            connect=lambda: client.unix(str(self.manager.socket)),
            credential=lambda: far_manager.SECRET,
            cluster="counter",
        )
        opened.shares_files = False
        opened.open(timeout_s=10)
        try:
            yield opened
        finally:
            opened.close()


@contextlib.asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[House]:
    async with (
        far_manager.serving_in(directory) as manager,
        wires.Wire(manager.port) as wire,
    ):
        made = House(directory, manager, wire)
        made.worker.start()
        yield made
        made.worker.destroy()
