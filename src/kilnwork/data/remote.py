"""The blobs of a manager that shares no folder with us, over HTTP.

Used by `cached`, which puts a local folder in front; `server.blobs` is the other end. How a manager
is asked is in `asking`.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kilnwork.data import asking, blobs, errors
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

RENEW_S = 2.0
"""How long the manager may be silent when blobs are renewed in passing, by threads that have other
things to do."""

_OK, _CREATED, _DONE, _NONE = 200, 201, 204, 404
_FAILURES = asking.Failures(
    unreachable=errors.BlobsUnreachable, refused=errors.BlobsRefused, full=errors.BlobNotWritten
)


class Store:
    """The manager's blobs of one namespace, over HTTP.

    `connect`, `caller`: as in `asking.Route`. `path`: of `/blobs/NAMESPACE`. `patience_s`: how long
    the manager may be away. Safe to use from several threads.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        caller: asking.Caller,
        *,
        path: str,
        patience_s: float = 60.0,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._path = path
        self._manager = asking.Manager(
            asking.Route(connect, caller),
            _FAILURES,
            what=path,
            patience_s=patience_s,
            clock=clock,
            entropy=entropy,
        )

    def fetch(self, digest: bytes, take: Callable[[Iterator[bytes]], None]) -> bool:
        """Give the content to `take`, which may be called again; False when there is none.

        Raises `BlobsUnreachable`, `BlobsRefused`.
        """

        def read(found: asking.Answered) -> bool:
            if found.answer.status == _NONE:
                found.connection.read()
                return False
            take(found.connection.pieces())
            return True

        return self._manager.ask(self._about("GET", digest, _OK, _NONE), read)

    def put(self, digest: bytes, file: Path) -> None:
        """Have the manager keep the content of a file. Raises also `BlobNotWritten`."""
        self._manager.ask(self._about("PUT", digest, _OK, _CREATED)._replace(file=file), _drop)

    def touch(self, digest: bytes) -> bool:
        """Renew it; False if there is none."""

        def read(found: asking.Answered) -> bool:
            found.connection.read()
            return found.answer.status != _NONE

        return self._manager.ask(self._about("POST", digest, _OK, _DONE, _NONE), read)

    def touch_all(self, digests: Sequence[bytes]) -> None:
        """Renew them, or not: once, in a moment, without a word."""
        body = msgspec.json.encode([blobs.text(digest) for digest in digests])
        asked = asking.Request("POST", self._path, (_OK, _DONE), data=body)
        with contextlib.suppress(asking.NotNow, OSError, errors.DataError):
            self._manager.ask_once(asked, _drop, timeout_s=RENEW_S)

    def close(self) -> None:
        """Let go of the connections; new requests open new ones."""
        self._manager.close()

    def _about(self, method: str, digest: bytes, *good: int) -> asking.Request:
        return asking.Request(method, f"{self._path}/{blobs.text(digest)}", good)


def _drop(found: asking.Answered) -> None:
    found.connection.read()
