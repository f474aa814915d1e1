"""Fast blocking reads of a server for shell completion, over one connection.

Used by `shell_completion`. It uses the blocking HTTP client of `endpoints`, which
loads in a third of the time that `session` needs with aiohttp: a user who pressed Tab waits.
"""

import contextlib
import functools
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from kilnwork.api import api_resources
from kilnwork.cli import options
from kilnwork.endpoints import connector, manager_client
from kilnwork.kit import clock, http_types
from kilnwork.kube import config

PATIENCE_S = 1.0
"""How long all reads together may take."""

NEWEST = 100
"""Maximum number of names that are offered."""

_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
"""Accept header for a list with only the metadata of its objects."""


class QuickReader:
    """Reader of the server that the command's options name, over blocking HTTP.

    Raises what `kube.config.load` raises.
    """

    def __init__(self, target: options.ServerTarget) -> None:
        path = Path(target.kubeconfig) if target.kubeconfig else None
        load = functools.partial(config.load, path, context=target.context)
        self._server = connector.ServerConnector(load, clock.SystemClock())
        self.namespace = target.namespace or self._server.settings.namespace
        self._manager = connector.ManagerConnector(load, namespace=self.namespace)
        self._http = manager_client.Client(self._server)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def names(self, served: api_resources.Resource) -> list[str]:
        """Return the names of objects of one kind, at most `NEWEST`."""
        found = self.get(
            served.base(self.namespace), {"limit": str(NEWEST)}, accept=_NAMES_ONLY
        ).document()
        return [str(item["metadata"]["name"]) for item in found.get("items") or ()]

    def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = http_types.JSON
    ) -> http_types.ClientResponse:
        """Return the API server's response to a GET."""
        return self._http.exchange(_request(self._server.path(path), query, accept))

    def of_manager(self, path: str, query: Mapping[str, str]) -> Any:
        """Return the document that the manager serves at a path, or None if there is no manager.

        The manager is found wherever it runs.
        """
        response = self.get(path, query)
        if response.is_kubernetes_status():  # from an API server with a manager behind it
            self._manager.find()
            http = manager_client.Client(self._manager)
            try:
                response = http.exchange(_request(self._manager.path(path), query))
            finally:
                http.close()
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(response.body) if response.ok else None
        return None


def _request(
    path: str, query: Mapping[str, str] | None, accept: str = http_types.JSON
) -> http_types.ClientRequest:
    return http_types.ClientRequest(
        method="GET", path=path, query=query, accept=accept, timeout_s=PATIENCE_S
    )


@contextlib.contextmanager
def limit_time() -> Iterator[None]:
    """Raise TimeoutError in a `with` block that takes longer than `PATIENCE_S`.

    It interrupts whatever the block waits for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _stop_reading)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _stop_reading(_: int, __: FrameType | None) -> None:
    raise TimeoutError
