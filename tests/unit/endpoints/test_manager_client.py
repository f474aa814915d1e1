"""The blocking client waits as long as a busy manager requests, but not longer than its
patience.
"""

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from kilnwork.endpoints import manager_client
from kilnwork.kit import errors, http_types

BUSY = [429, 502, 503, 504]
GET = http_types.ClientRequest(method="GET", path="/")


class Manager:
    """HTTP server that is busy once; `came` has the times of requests."""

    def __init__(self, status: int, retry_after: str) -> None:
        came = self.came = list[float]()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                came.append(time.monotonic())
                first = len(came) == 1
                self.send_response(status if first else 200)
                if first:
                    self.send_header("Retry-After", retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._server.server_port))

    def headers(self) -> Mapping[str, str]:
        return {}

    def refused(self) -> None:
        raise AssertionError("nothing is refused here")

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def manager(status: int, retry_after: str) -> Iterator[Manager]:
    made = Manager(status, retry_after)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("status", BUSY)
def test_busy_manager_is_retried_after_the_requested_time(status: int) -> None:
    with manager(status, "1") as busy:
        with contextlib.closing(manager_client.Client(busy)) as http:
            http.send(GET, (200,), manager_client.drop)
        first, second = busy.came
    assert second - first >= 1.0


@pytest.mark.parametrize("said", ["soon", "-1", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_invalid_or_past_retry_time_delays_nothing(said: str) -> None:
    with manager(503, said) as busy:
        with contextlib.closing(manager_client.Client(busy, patience_s=30)) as http:
            http.send(GET, (200,), manager_client.drop)
        assert len(busy.came) == 2


def test_wait_longer_than_the_patience_fails_at_once() -> None:
    with manager(503, "3600") as busy:
        with (
            contextlib.closing(manager_client.Client(busy, what="/blobs", patience_s=30)) as http,
            pytest.raises(errors.KilnError, match=r"/blobs .*asks to wait 3,600 s"),
        ):
            http.send(GET, (200,), manager_client.drop)
        assert len(busy.came) == 1
