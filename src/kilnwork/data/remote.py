"""Blobs of a manager that shares no folder with us: a local folder in front of its `/blobs`.

Used by sessions and slots whose link goes over the network; `server.blobs` is the other end. What
is read comes from the local folder, and is fetched into it at first; what is put is on the
manager's disk before `put` returns. Many processes may use one folder: of those that miss the same
blob one fetches it. The manager's blobs are what counts; the folder may lose anything at any time.
"""

import contextlib
import fcntl
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

CACHE_BYTES = 2 << 30
"""What a folder may hold; beyond, what was not used for longest goes."""

ASK_FIRST_BYTES = 1 << 20
"""From this size on it is asked whether the manager has a blob, before it is sent."""

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


class CachedBlobs(blobs.Blobs):
    """See the module. `folder`: local; `store`: what counts."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        *,
        time: clocks.Clock | None = None,
        most_bytes: int = CACHE_BYTES,
    ) -> None:
        super().__init__(folder, durable=False, time=time)
        self._store = store
        self._most_bytes = most_bytes
        self._new_bytes = 0
        self._given: dict[bytes, float] = {}
        """When the manager last said that it has a blob."""

    def put(self, parts: Sequence[blobs.Part]) -> tuple[bytes, int]:
        """As `Blobs.put`: on the manager's disk when it returns."""
        digest, size = super().put(parts)
        self._give(digest, size)
        return digest, size

    def writer(self) -> blobs.Writer:
        """As `Blobs.writer`."""
        return _Writer(self)

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        """As `Blobs.get`; raises also `BlobsUnreachable`, `BlobsRefused`."""
        with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
            return super().get(digest, private=private)
        self._fetch(digest)
        return super().get(digest, private=private)

    def open(self, digest: bytes) -> int:
        """As `Blobs.open`."""
        try:
            return super().open(digest)
        except errors.BlobMissing:  # somebody made room between two looks
            return super().open(digest)

    def touch(self, digest: bytes) -> bool:
        """As `Blobs.touch`, there and here."""
        here = self.touch_here(digest)
        if self._is_fresh(digest):
            return True
        if self._store.touch(digest):
            self._note(digest)
            return True
        if here:  # the manager has lost it, but we have not
            with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
                self._give(digest, super().get(digest).nbytes)
                return True
        return False

    def touch_all(self, digests: Sequence[bytes]) -> None:
        """As `Blobs.touch_all`: from the thread of a link, so with little patience."""
        for digest in digests:
            self.touch_here(digest)
        stale = [digest for digest in digests if not self._is_fresh(digest)]
        if stale:
            self._store.touch_all(stale)

    def give(self, digest: bytes, size: int) -> None:
        """For `_Writer`: what is in the folder goes to the manager."""
        self._give(digest, size)

    def _give(self, digest: bytes, size: int) -> None:
        if self._is_fresh(digest):
            return
        if size < ASK_FIRST_BYTES or not self._store.touch(digest):
            self._store.put(digest, self.path(digest))
        self._note(digest)
        self._grew(size)

    def _fetch(self, digest: bytes) -> None:
        """Raises `BlobMissing` when the manager has none either."""
        blobs.make_folder(self.folder)
        with _locked(self.folder / f".get-{digest[:1].hex()}"):
            with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
                super().get(digest)
                return  # somebody else has fetched it meanwhile

            def take(pieces: Iterator[bytes]) -> None:
                with blobs.Writer(self) as new:
                    for piece in pieces:
                        new.write(piece)
                    if new.digest != digest:
                        raise errors.BlobDamaged(
                            f"blob {blobs.text(digest)} is damaged at the manager: it sent "
                            f"{new.size} bytes that are something else. Make the value again"
                        )
                    new.commit()
                    self._grew(new.size)

            if not self._store.fetch(digest, take):
                raise errors.BlobMissing(
                    f"the manager has no blob {blobs.text(digest)}: nothing referred to it for an "
                    "hour, or somebody removed it. Make the value again, and keep its Ref, or a "
                    "task that uses it, for as long as it is needed"
                )
            self._note(digest)

    def _is_fresh(self, digest: bytes) -> bool:
        return 0 <= self._time.wall() - self._given.get(digest, float("-inf")) < blobs.FRESH_S

    def _note(self, digest: bytes) -> None:
        if len(self._given) >= 1 << 14:
            self._given.clear()
        self._given[digest] = self._time.wall()

    def _grew(self, size: int) -> None:
        """Make room now and then: others fill the same folder, and do the same."""
        self._new_bytes += size
        if self._new_bytes > self._most_bytes // 8:
            self._new_bytes = 0
            self._make_room()

    def _make_room(self) -> None:
        found = []
        for entry in self.entries():
            with contextlib.suppress(FileNotFoundError):
                size = self.path(entry.digest).stat().st_size
                found.append((entry.modified, size, entry.digest))
        held = sum(size for _, size, _ in found)
        for _, size, digest in sorted(found):
            if held <= self._most_bytes:
                return
            self.path(digest).unlink(missing_ok=True)
            held -= size


class _Writer(blobs.Writer):
    """Whose blob is at the manager after `commit`."""

    def __init__(self, kept: CachedBlobs) -> None:
        super().__init__(kept)
        self._kept = kept

    def commit_as(self, digest: bytes) -> None:
        """As `Writer.commit_as`."""
        super().commit_as(digest)
        self._kept.give(digest, self.size)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """For one process and thread at a time."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
