"""Remote blobs: accesses the blobs of a manager that shares no directory with this process, over
HTTP.

Used by `cached_blobs`, which adds a local directory, and by executors and sidecars, which create
these objects; `server.blobs` is the other end.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kilnwork.data import errors, local_blobs
from kilnwork.endpoints import manager_client
from kilnwork.kit import clock as clocks
from kilnwork.kit import http_types, ids

RENEW_S = 2.0
"""Timeout for renewing blobs in threads that have other work to do."""

_OK, _CREATED, _DONE, _NONE = 200, 201, 204, 404
_FAILURES = manager_client.Failures(
    unreachable=errors.BlobsUnreachable, refused=errors.BlobsRefused, full=errors.BlobNotWritten
)


class RemoteBlobs:
    """The manager's blobs of one namespace, accessed over HTTP. Thread-safe.

    `path`: the URL path `/blobs/NAMESPACE`. `patience_s`: how long to retry while the manager is
    unreachable.
    """

    def __init__(
        self,
        connector: manager_client.Connector,
        *,
        path: str,
        patience_s: float = 60.0,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._path = path
        self._client = manager_client.Client(
            connector,
            _FAILURES,
            what=path,
            patience_s=patience_s,
            clock=clock,
            entropy=entropy,
        )

    def fetch(self, digest: bytes, take: Callable[[Iterator[bytes]], None]) -> bool:
        """Call `take` with the content of a blob. Return False if there is no such blob.

        If the transfer is interrupted, `take` is called again, with the content from the beginning.
        Raises `BlobsUnreachable`, `BlobsRefused`.
        """

        def read(response: manager_client.OpenResponse) -> bool:
            if response.head.status == _NONE:
                manager_client.drop(response)
                return False
            take(response.connection.pieces())
            return True

        return self._client.send(self._make_request("GET", digest), (_OK, _NONE), read)

    def put(self, digest: bytes, file: Path) -> None:
        """Send the content of a file to the manager. Raises the errors of `fetch`, and
        `BlobNotWritten`.
        """
        request = self._make_request("PUT", digest, body=file)
        self._client.send(request, (_OK, _CREATED), manager_client.drop)

    def touch(self, digest: bytes) -> bool:
        """Renew a blob; return False if there is no such blob."""

        def read(response: manager_client.OpenResponse) -> bool:
            manager_client.drop(response)
            return response.head.status != _NONE

        return self._client.send(self._make_request("POST", digest), (_OK, _DONE, _NONE), read)

    def touch_all(self, digests: Sequence[bytes]) -> None:
        """Renew blobs with a single short request; failures are ignored."""
        body = msgspec.json.encode([local_blobs.text(digest) for digest in digests])
        request = http_types.ClientRequest(
            method="POST", path=self._path, body=body, timeout_s=RENEW_S
        )
        with contextlib.suppress(manager_client.TryAgain, OSError, errors.DataError):
            self._client.send_once(request, (_OK, _DONE), manager_client.drop)

    def close(self) -> None:
        """Close the connections; new requests open new ones."""
        self._client.close()

    def _make_request(
        self, method: str, digest: bytes, *, body: Path | None = None
    ) -> http_types.ClientRequest:
        return http_types.ClientRequest(
            method=method,
            path=f"{self._path}/{local_blobs.text(digest)}",
            body=body,
            content_type="",
            accept="",
        )
