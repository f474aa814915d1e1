"""Plain HTTPS to the API server of a `kiln up` that may be down for a while.

One connection per thread. Does not interpret watches and retries nothing by itself.
"""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib import parse

from kilnwork.kube import config
from support import tls_connections

BROKEN = (OSError, http.client.HTTPException)
"""Errors of a connection to a server that is killed."""

REQUEST_S = 60.0
"""Longer than any pause: a paused server responds in the end to what was sent to it."""


class Response(NamedTuple):
    """Status and document; an empty document for a body that is not JSON."""

    status: int
    document: Any

    @property
    def version(self) -> int:
        """Return the resourceVersion of the response; 0 if it has none."""
        return int(self.document.get("metadata", {}).get("resourceVersion") or 0)


class Client:
    """Requests with the administrator's token, at the current address of the server."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._own = threading.local()
        self._open: list[http.client.HTTPSConnection] = []

    def connect(self, *, timeout_s: float = REQUEST_S) -> tuple[http.client.HTTPSConnection, str]:
        settings = config.load(self._data / "kubeconfig")
        place = parse.urlsplit(settings.server)
        tls = ssl.create_default_context(cadata=settings.ca_data)
        made = tls_connections.TlsConnection(place.netloc, tls=tls, timeout_s=timeout_s)
        return made, str(settings.token)

    def request(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Response:
        """Send one request. Raises one of BROKEN; then the request may have been carried out."""
        known = getattr(self._own, "connection", None)
        connection, token = known or self._opened()
        self._own.connection = None
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": content}
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        self._own.connection = connection, token
        try:
            return Response(response.status, json.loads(text or b"{}"))
        except ValueError:
            return Response(response.status, {})

    def _opened(self) -> tuple[http.client.HTTPSConnection, str]:
        """Return the connection of this thread."""
        made, token = self.connect()
        self._open.append(made)
        return made, token

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def insist(self, method: str, path: str, body: Any = None, *, until: float) -> Response:
        """Send a request, repeated while the server is down or reports that it is not ready."""
        while True:
            try:
                found = self.request(method, path, body)
                if found.status < 500 and found.status != 429:
                    return found
                why = f"{found.status} {found.document}"
            except BROKEN as error:
                why = repr(error)
            if time.monotonic() > until:
                raise TimeoutError(f"{method} {path}: {why}")
            time.sleep(0.05)


class Workers:
    """Threads of one run, whose first exception ends the run."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def start(self, function: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(function, name), name=name)
        thread.daemon = True
        self._threads.append(thread)
        thread.start()

    def _guarded(self, function: Callable[[], None], name: str) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  the run says what it was
            error.add_note(f"in {name}")
            self.failures.append(error)

    def alive(self) -> list[str]:
        """Return the names of the threads that are not done."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def join(self, until: float) -> list[str]:
        """Wait for all threads; return the names of those that are late."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return self.alive()
