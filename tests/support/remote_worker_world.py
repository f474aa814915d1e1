"""A manager behind TLS, a proxy as the network, a remote worker, and local drivers."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from kilnwork.channel import blocking_link
from kilnwork.sdk import driver_session
from support import remote_manager, tcp_proxy, worker_process

_TESTS = Path(__file__).parents[1]


class World:
    """Manager, network and worker. Slots find the modules of tests."""

    def __init__(
        self, directory: Path, manager: remote_manager.RemoteManager, wire: tcp_proxy.TcpProxy
    ) -> None:
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
    def driver(self) -> Iterator[driver_session.Driver]:
        """Open a driver inside the block; call it in a thread, since it blocks."""
        connected = driver_session.Driver(
            connect=lambda: blocking_link.unix(str(self.manager.socket)),
            credential=lambda: remote_manager.SECRET,
            cluster="counter",
        )
        connected.shares_files = False
        connected.open(timeout_s=10)
        try:
            yield connected
        finally:
            connected.close()


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[World]:
    async with (
        remote_manager.running(directory) as manager,
        tcp_proxy.TcpProxy(manager.port) as wire,
    ):
        made = World(directory, manager, wire)
        made.worker.start()
        yield made
        made.worker.destroy()
