"""Asking the manager by HTTP, again and again while it is away.

Used by `remote` (blobs) and `stores.remote` (objects). Requests may be repeated, and are, for as
long as the manager is away and patience lasts. Connections are kept for the next requests.
"""

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from kilnwork.data import errors
from kilnwork.kit import backoff, http1, ids
from kilnwork.kit import clock as clocks

ANSWER_S = 30.0
"""A manager may be silent for so long."""

_AGAIN = backoff.Backoff(base_s=0.05, max_s=2.0, jitter=0.2)
_PIECE_BYTES = 256 << 10
_IDLE = 4
"""Connections that are kept open for the next requests."""

_UNAUTHORIZED, _NO_ROOM = 401, 507
_LATER = frozenset({429, 502, 503, 504})
"""The manager, or what is in between, is starting, stopping or overloaded."""

R = TypeVar("R")


class NotNow(Exception):
    """To be tried again."""


class Request(NamedTuple):
    """Its body, if any, is a file or bytes. `good`: the answers that are read. `path`: whole."""

    method: str
    path: str
    good: tuple[int, ...]
    headers: Mapping[str, str] = {}
    file: Path | None = None
    data: bytes | None = None


class Answered(NamedTuple):
    """One of the good answers. `repeated`: it may have been carried out before, unheard."""

    answer: http1.Answer
    connection: http1.Connection
    repeated: bool


class Failures(NamedTuple):
    """What is raised when there is no good answer."""

    unreachable: type[errors.DataError]
    refused: type[errors.DataError]
    full: type[errors.DataError]


class Caller(Protocol):
    """Who we are, to the manager. Asked from several threads."""

    def headers(self) -> Mapping[str, str]:
        """What to say with each request."""
        ...

    def refused(self) -> None:
        """It was not believed: say something else, if there is anything else to say."""
        ...


class Route(NamedTuple):
    """How a manager is asked. `connect`: a fresh connected socket, of TLS or a relay; OSError means
    try again, a KilnError never."""

    connect: Callable[[], socket.socket]
    caller: Caller


class Manager:
    """What answers at a route. `what`: the path that messages name. `patience_s`: how long it may
    be away. Safe to use from several threads."""

    def __init__(
        self,
        route: Route,
        failures: Failures,
        *,
        what: str,
        patience_s: float = 60.0,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._route = route
        self._failures = failures
        self._what = what
        self._patience_s = patience_s
        self._clock = clock or clocks.SystemClock()
        self._entropy = entropy or ids.system_entropy()
        self._idle: list[http1.Connection] = []
        self._owner = os.getpid()
        self._pause = threading.Event()
        weakref.finalize(self, _close, self._idle)

    def ask(self, request: Request, read: Callable[[Answered], R], *, lend: bool = False) -> R:
        """One request that may be repeated, until it is answered or the patience is over.

        `read` may be called again. `lend`: the connection is the caller's afterwards, who closes it
        or gives it back when the body is read. Raises the failures.
        """
        until = self._clock.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                return self.ask_once(request, read, repeated=failures > 0, lend=lend)
            except NotNow as error:
                failures += 1
                if self._clock.monotonic() > until:
                    raise self._failures.unreachable(
                        f"the manager's {self._what} cannot be reached for {self._patience_s:g} s "
                        f"({error}): is it running?"
                    ) from error
                self._pause.wait(_AGAIN.delay_s(failures, entropy=self._entropy))

    def ask_once(
        self,
        request: Request,
        read: Callable[[Answered], R],
        *,
        timeout_s: float = ANSWER_S,
        repeated: bool = False,
        lend: bool = False,
    ) -> R:
        """Raises `NotNow` for what may be better the next time."""
        again = False
        while True:
            connection, used = self._take()
            try:
                connection.socket.settimeout(timeout_s)
                answer = _exchange(connection, request, self._route.caller.headers())
                if answer.status in request.good:
                    found = read(Answered(answer, connection, repeated))
                    if not lend:
                        self.give_back(connection)
                    return found
                if answer.status == _UNAUTHORIZED and not again:
                    again = True
                    connection.close()
                    self._route.caller.refused()
                    continue
                raise self._refusal(answer, connection)
            except (OSError, http1.BadAnswer) as error:
                connection.close()
                repeated = True
                if not used:
                    raise NotNow(str(error) or type(error).__name__) from error
            except BaseException:
                connection.close()
                raise

    def close(self) -> None:
        """Let go of the connections; new requests open new ones."""
        _close(self._idle)

    def _refusal(self, answer: http1.Answer, connection: http1.Connection) -> Exception:
        text = _detail(connection.read()) or f"{answer.status} {answer.reason}"
        connection.close()
        if answer.status in _LATER:
            return NotNow(text)
        if answer.status == _NO_ROOM:
            return self._failures.full(text)
        return self._failures.refused(f"the manager refuses {self._what}: {text}")

    def _take(self) -> tuple[http1.Connection, bool]:
        """A connection, and whether it was used before: then it may be over without our knowing."""
        if self._owner != os.getpid():  # a fork shares connections with its parent, and must not
            self._owner = os.getpid()
            _close(self._idle)
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        try:
            return http1.Connection(self._route.connect()), False
        except OSError as error:
            raise NotNow(str(error) or type(error).__name__) from error

    def give_back(self, connection: http1.Connection) -> None:
        """Its answer is read: it is good for the next request, or closed."""
        if connection.reusable and len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def _exchange(
    connection: http1.Connection, request: Request, caller: Mapping[str, str]
) -> http1.Answer:
    method, file, data = request.method, request.file, request.data
    headers = {**caller, **request.headers}
    try:
        if file is None:
            body = () if data is None else (data,)
            length = None if method == "GET" else len(data or b"")
            connection.send(method, request.path, headers, body=body, length=length)
        else:
            with file.open("rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                pieces = iter(lambda: opened.read(_PIECE_BYTES), b"")
                connection.send(method, request.path, headers, body=pieces, length=size)
    except (BrokenPipeError, ConnectionResetError):
        return connection.answer(to=method)  # it may have said why it reads no more
    return connection.answer(to=method)


def _close(idle: list[http1.Connection]) -> None:
    while idle:
        idle.pop().close()


def _detail(body: bytes) -> str:
    """The sentence of problem details or of a Status."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return body.decode(errors="replace").strip()[:500]
    if not isinstance(document, dict):
        return ""
    return str(document.get("detail") or document.get("message") or "")
