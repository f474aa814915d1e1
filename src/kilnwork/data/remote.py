"""The blobs of a manager that shares no folder with us, over HTTP.

Used by `cached`, which puts a local folder in front; `server.blobs` is the other end. Requests may
be repeated, and are, for as long as the manager is away and patience lasts.
"""

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from kilnwork.data import blobs, errors
from kilnwork.kit import backoff, http1, ids
from kilnwork.kit import clock as clocks

ANSWER_S = 30.0
"""A manager may be silent for so long."""

RENEW_S = 2.0
"""The same for what is renewed in passing, by threads that have other things to do."""

_AGAIN = backoff.Backoff(base_s=0.05, max_s=2.0, jitter=0.2)
_PIECE_BYTES = 256 << 10
_IDLE = 4
"""Connections that are kept open for the next requests."""

_OK, _NONE, _UNAUTHORIZED, _NO_ROOM = 200, 404, 401, 507
_LATER = frozenset({429, 502, 503, 504})
"""The manager, or what is in between, is starting, stopping or overloaded."""

R = TypeVar("R")


class _NotNow(Exception):
    """To be tried again."""


class _Asked(NamedTuple):
    """A request; its body, if any, is a file or bytes. `good`: the answers that are read."""

    method: str
    digest: bytes | None
    good: tuple[int, ...]
    file: Path | None = None
    data: bytes | None = None


class Caller(Protocol):
    """Who we are, to the manager. Asked from several threads."""

    def headers(self) -> Mapping[str, str]:
        """What to say with each request."""
        ...

    def refused(self) -> None:
        """It was not believed: say something else, if there is anything else to say."""
        ...


class Store:
    """The manager's blobs of one namespace, over HTTP.

    `connect`: a fresh connected socket, of TLS or a relay; OSError means try again, a KilnError
    never. `path`: of `/blobs/NAMESPACE`. `patience_s`: how long the manager may be away. Safe to
    use from several threads.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        *,
        path: str,
        caller: Caller,
        patience_s: float = 60.0,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._connect = connect
        self._path = path
        self._caller = caller
        self._patience_s = patience_s
        self._clock = clock or clocks.SystemClock()
        self._entropy = entropy or ids.system_entropy()
        self._idle: list[http1.Connection] = []
        self._owner = os.getpid()
        self._pause = threading.Event()
        weakref.finalize(self, _close, self._idle)

    def fetch(self, digest: bytes, take: Callable[[Iterator[bytes]], None]) -> bool:
        """Give the content to `take`, which may be called again; False when there is none.

        Raises `BlobsUnreachable`, `BlobsRefused`.
        """

        def read(answer: http1.Answer, connection: http1.Connection) -> bool:
            if answer.status == _NONE:
                connection.read()
                return False
            take(connection.pieces())
            return True

        return self._exchange(_Asked("GET", digest, (_OK, _NONE)), read)

    def put(self, digest: bytes, file: Path) -> None:
        """Have the manager keep the content of a file. Raises also `BlobNotWritten`."""
        self._exchange(_Asked("PUT", digest, (_OK, 201), file=file), _drop)

    def touch(self, digest: bytes) -> bool:
        """Renew it; False if there is none."""

        def read(answer: http1.Answer, connection: http1.Connection) -> bool:
            connection.read()
            return answer.status != _NONE

        return self._exchange(_Asked("POST", digest, (_OK, 204, _NONE)), read)

    def touch_all(self, digests: Sequence[bytes]) -> None:
        """Renew them, or not: once, in a moment, without a word."""
        body = msgspec.json.encode([blobs.text(digest) for digest in digests])
        asked = _Asked("POST", None, (_OK, 204), data=body)
        with contextlib.suppress(_NotNow, OSError, errors.DataError):
            self._once(asked, _drop, timeout_s=RENEW_S)

    def close(self) -> None:
        """Let go of the connections; new requests open new ones."""
        _close(self._idle)

    def _exchange(self, asked: _Asked, read: Callable[[http1.Answer, http1.Connection], R]) -> R:
        """One request that may be repeated, until it is answered or the patience is over."""
        until = self._clock.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                return self._once(asked, read)
            except _NotNow as error:
                failures += 1
                if self._clock.monotonic() > until:
                    raise errors.BlobsUnreachable(
                        f"the manager's {self._path} cannot be reached for {self._patience_s:g} s "
                        f"({error}): is it running?"
                    ) from error
                self._pause.wait(_AGAIN.delay_s(failures, entropy=self._entropy))

    def _once(
        self,
        asked: _Asked,
        read: Callable[[http1.Answer, http1.Connection], R],
        *,
        timeout_s: float = ANSWER_S,
    ) -> R:
        """Raises `_NotNow` for what may be better the next time."""
        again = False
        while True:
            connection, used = self._take()
            try:
                connection.socket.settimeout(timeout_s)
                answer = self._ask(connection, asked, self._caller.headers())
                if answer.status in asked.good:
                    found = read(answer, connection)
                    self._give_back(connection)
                    return found
                if answer.status == _UNAUTHORIZED and not again:
                    again = True
                    connection.close()
                    self._caller.refused()
                    continue
                raise self._refusal(answer, connection)
            except (OSError, http1.BadAnswer) as error:
                connection.close()
                if not used:
                    raise _NotNow(str(error) or type(error).__name__) from error
            except BaseException:
                connection.close()
                raise

    def _ask(
        self, connection: http1.Connection, asked: _Asked, headers: Mapping[str, str]
    ) -> http1.Answer:
        method, file, data = asked.method, asked.file, asked.data
        path = self._path if asked.digest is None else f"{self._path}/{blobs.text(asked.digest)}"
        try:
            if file is None:
                body = () if data is None else (data,)
                length = None if method == "GET" else len(data or b"")
                connection.send(method, path, headers, body=body, length=length)
            else:
                with file.open("rb") as opened:
                    size = os.fstat(opened.fileno()).st_size
                    pieces = iter(lambda: opened.read(_PIECE_BYTES), b"")
                    connection.send(method, path, headers, body=pieces, length=size)
        except (BrokenPipeError, ConnectionResetError):
            return connection.answer(to=method)  # it may have said why it reads no more
        return connection.answer(to=method)

    def _refusal(self, answer: http1.Answer, connection: http1.Connection) -> Exception:
        text = _detail(connection.read()) or f"{answer.status} {answer.reason}"
        connection.close()
        if answer.status in _LATER:
            return _NotNow(text)
        if answer.status == _NO_ROOM:
            return errors.BlobNotWritten(text)
        return errors.BlobsRefused(f"the manager refuses {self._path}: {text}")

    def _take(self) -> tuple[http1.Connection, bool]:
        """A connection, and whether it was used before: then it may be over without our knowing."""
        if self._owner != os.getpid():  # a fork shares connections with its parent, and must not
            self._owner = os.getpid()
            _close(self._idle)
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        try:
            return http1.Connection(self._connect()), False
        except OSError as error:
            raise _NotNow(str(error) or type(error).__name__) from error

    def _give_back(self, connection: http1.Connection) -> None:
        if connection.reusable and len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def _close(idle: list[http1.Connection]) -> None:
    while idle:
        idle.pop().close()


def _drop(_: http1.Answer, connection: http1.Connection) -> None:
    connection.read()


def _detail(body: bytes) -> str:
    """The sentence of problem details or of a Status."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return body.decode(errors="replace").strip()[:500]
    if not isinstance(document, dict):
        return ""
    return str(document.get("detail") or document.get("message") or "")
