"""Stores of files for tests, one of each kind."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from kilnwork.api import manager_access
from kilnwork.data.stores import local, manager_http_store, port, store_urls
from kilnwork.endpoints import manager_client
from kilnwork.kit import asgi, serving
from kilnwork.server import worker_file_api
from support import verifiers

KINDS = ("local", "remote")
SECRET = "opensesame"


class Worker:
    """Connects to `port` with the token of cluster `of`."""

    def __init__(self, of: str = "ns/default", *, token: str = SECRET, port: int = 0) -> None:
        self.of = of
        self.token = token
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def headers(self) -> Mapping[str, str]:
        return {
            "Host": "manager",
            manager_access.TOKEN_HEADER: self.token,
            manager_access.CLUSTER_HEADER: self.of,
        }

    def refused(self) -> None:
        """Do nothing: there is no other token."""


class ObjectServer:
    """A manager's object API, served by a thread. `app` may be replaced by one that wraps it."""

    def __init__(
        self, store: port.Store, *, rule: worker_file_api.Rule = worker_file_api.slots_only
    ) -> None:
        self.store = store
        self.app: asgi.App = worker_file_api.ObjectsApp(
            store, verifiers.OneSecret(SECRET), rule=rule
        )
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._listener: serving.Listener
        self._thread = threading.Thread(target=self._loop.run_forever, name="manager")

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start)
        return self

    def __exit__(self, *problem: object) -> None:
        self._do(self._stop)
        self._do(self._loop.shutdown_default_executor)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def connector(self, worker: Worker | None = None) -> Worker:
        """Return a worker (a new one unless given) that connects to this server."""
        made = worker or Worker()
        made.port = self.port
        return made

    def restart(self, pause: Callable[[], None]) -> None:
        """Stop the server, run `pause`, and start it on the same port."""
        self._do(self._stop)
        pause()
        self._do(self._start)

    def _do(self, story: Callable[[], object]) -> None:
        async def run() -> None:
            found = story()
            assert asyncio.iscoroutine(found)
            await found

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _start(self) -> None:
        listening = serving.bind("127.0.0.1", self.port)
        self.port = listening.getsockname()[1]

        async def response(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
            await self.app(scope, receive, send)

        self._listener = serving.Listener(response, listening)
        await self._listener.start()

    async def _stop(self) -> None:
        await self._listener.stop(timeout_s=0.5)


@contextlib.contextmanager
def open_store(kind: str, directory: Path) -> Iterator[port.Store]:
    kept = local.LocalStore(directory / "a store, 100 % local")
    if kind == "local":
        yield kept
        return
    with ObjectServer(kept, rule=lambda asked: True) as served:
        store = manager_http_store.RemoteStore(
            "kiln:ns", served.connector(), spool=directory / "spool"
        )
        manager_client.slot_manager = manager_client.SlotManager(
            served.connector(), directory / "spool"
        )
        yield store
        manager_client.slot_manager = None
        store.client.close()


def reopen(store: port.Store, *names: str) -> port.Store:
    """Open the store, or what is below `names` in it, as another process would."""
    return store_urls.open_store(store_urls.url_inside(store.url, *names))
