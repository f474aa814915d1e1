"""Remote store: the store of a manager that shares no directory with this process, `kiln:NAMESPACE`
or `kiln:NAMESPACE/JOB`.

Opened by `store_urls`, in slots whose link goes over the network; `server.worker_file_api` is the
other end and authorizes requests. Requests are repeated while the manager is unreachable
(`endpoints.manager_client`); a repeated create succeeded if the existing object has the content
that was sent. Objects written in pieces are collected in a temporary file until they are complete,
so that sending them can be repeated too.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from kilnwork.data import context_manager_bases, errors
from kilnwork.data.stores import file_writing, port
from kilnwork.endpoints import manager_client
from kilnwork.kit import http1_client, http_types

PATH = "/objects"
"""Path at which the manager serves objects, followed by namespace and key."""

MODIFIED_HEADER = "X-Kiln-Modified"
"""Header with `ObjectFacts.modified`, since Last-Modified has only whole seconds."""

PAGE = 1000
"""Number of objects in one response to a list request."""

_MIB = 1 << 20
_OK, _CREATED, _DONE, _PARTLY, _NONE, _CHANGED, _BEYOND = 200, 201, 204, 206, 404, 412, 416
_FAILURES = manager_client.Failures(
    unreachable=errors.StoreUnreachable, refused=errors.StoreRefused, full=errors.StoreFull
)

_FRUITLESS = 3
"""Number of consecutive responses that may break off before their first byte."""

_MODIFIED = MODIFIED_HEADER.lower()
_FACTS = msgspec.json.Decoder(list[port.ObjectFacts])
_NAMES = msgspec.json.Decoder(list[str])


class RemoteStore:
    """A store at the manager (`port.Store`). `spool`: directory of temporary files; by default that
    of the system.
    """

    def __init__(
        self,
        url: str,
        connector: manager_client.Connector,
        *,
        spool: Path | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self.url = url
        namespace, _, directory = url.removeprefix("kiln:").partition("/")
        port.check_key(namespace)
        self._root = f"{directory}/" if port.check_directory(directory and directory + "/") else ""
        self._path = f"{PATH}/{namespace}"
        self.spool = spool
        what = f"{self._path}/{self._root}"
        self.client = manager_client.Client(connector, _FAILURES, what=what, patience_s=patience_s)

    def head(self, key: str) -> port.ObjectFacts:
        def read(response: manager_client.OpenResponse) -> port.ObjectFacts:
            if response.head.status == _NONE:
                raise self.missing_error(key)
            return _facts(key, response.head)

        return self.client.send(self.make_request("HEAD", key), (_OK, _NONE), read)

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> "RemoteReading":
        """Open an object as `Store.read`."""
        return RemoteReading(self, key, start=max(start, 0), end=end)

    def put(
        self, key: str, data: port.Data, *, create: bool = False, if_match: str | None = None
    ) -> port.ObjectFacts:
        sent = bytes(data)
        return self._write(sent, key, create=create, if_match=if_match, sent=iter((sent,)))

    def writer(self, key: str, *, create: bool = False) -> "RemoteWriter":
        return RemoteWriter(self, port.check_key(key), create=create)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[port.ObjectFacts]:
        last = self._root + after
        while True:
            query = {"prefix": self._root + port.check_prefix(prefix), "after": last}
            page = _FACTS.decode(self._fetch_list(query))
            for facts in page:
                yield facts._replace(key=facts.key.removeprefix(self._root))
            if len(page) < PAGE:
                return
            last = page[-1].key

    def directories(self, prefix: str = "") -> Iterator[str]:
        query = {"directories": self._root + port.check_directory(prefix)}
        yield from _NAMES.decode(self._fetch_list(query))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.client.send(
                self.make_request("DELETE", key), (_OK, _DONE, _NONE), manager_client.drop
            )

    # for readings and writers

    def make_request(
        self,
        method: str,
        key: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Path | None = None,
    ) -> http_types.ClientRequest:
        return http_types.ClientRequest(
            method=method,
            path=f"{self._path}/{self._root}{port.check_key(key)}",
            headers=headers,
            body=body,
            content_type="",
            accept="",
        )

    def missing_error(self, key: str) -> errors.ObjectMissing:
        """Return the error for an object that does not exist at the manager."""
        return errors.ObjectMissing(f"there is no {key} in {self.url}")

    def write_file(self, key: str, file: Path, *, create: bool) -> port.ObjectFacts:
        """Send the content of a file to the manager as an object, as `put`."""
        return self._write(file, key, create=create, if_match=None, sent=_pieces(file))

    def _write(
        self,
        body: bytes | Path,
        key: str,
        *,
        create: bool,
        if_match: str | None,
        sent: Iterator[bytes],
    ) -> port.ObjectFacts:
        headers = {"If-None-Match": "*"} if create else {}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'

        def read(response: manager_client.OpenResponse) -> tuple[port.ObjectFacts | None, bool]:
            response.connection.read()
            status = response.head.status
            return None if status == _CHANGED else _facts(key, response.head), response.repeated

        request = self.make_request("PUT", key, headers=headers, body=body)
        facts, repeated = self.client.send(request, (_OK, _CREATED, _CHANGED), read)
        if facts is None and repeated:  # perhaps our first request created it
            facts = self._find_same_object(key, sent)
        if facts is not None:
            return facts
        if create:
            raise errors.ObjectExists(f"there is a {key} in {self.url} already")
        raise errors.ObjectChanged(
            f"{key} in {self.url} has no longer etag {if_match}: read it again, then decide again"
        )

    def _find_same_object(self, key: str, sent: Iterator[bytes]) -> port.ObjectFacts | None:
        """Return the facts of an object if its content is exactly that of `sent`, else None."""
        with contextlib.suppress(errors.ObjectMissing), self.read(key) as reading:
            theirs, ours = bytearray(), bytearray()
            for piece in reading:
                theirs += piece
                while len(ours) < len(theirs) and (more := next(sent, b"")):
                    ours += more
                if not ours.startswith(theirs):
                    return None
                del ours[: len(theirs)]
                theirs.clear()
            return None if ours or any(sent) else reading.facts
        return None

    def _fetch_list(self, query: dict[str, str]) -> bytes:
        request = http_types.ClientRequest(method="GET", path=self._path, query=query)

        def read(response: manager_client.OpenResponse) -> bytes:
            return response.connection.read(most=16 * _MIB)

        return self.client.send(request, (_OK,), read)


class RemoteReading(context_manager_bases.Closeable):
    """An open object at the manager (`port.Reading`). If a response breaks off, the rest is
    requested again.
    """

    def __init__(self, store: RemoteStore, key: str, *, start: int, end: int | None) -> None:
        self._store = store
        self._key = key
        self._connection: http1_client.Connection | None = None
        wanted = None if end is None else max(end, start)
        if wanted == start:
            self.facts, there = store.head(key), False
        else:
            self.facts, there = self._request_range(start, wanted)
        size = self.facts.bytes
        self.start = min(start, size)
        self.end = size if wanted is None else min(wanted, size)
        if not there:
            self.close()

    def __iter__(self) -> Iterator[bytes]:
        at, fruitless = self.start, 0
        while at < self.end:
            if self._connection is None:
                self._request_range(at, self.end)
            try:
                for piece in self._received_pieces():
                    at, fruitless = at + len(piece), 0
                    yield piece
            except (OSError, http1_client.BadResponse) as error:
                self.close()
                fruitless += 1
                if fruitless > _FRUITLESS:
                    raise errors.StoreUnreachable(
                        f"{self._key} in {self._store.url} breaks off at byte {at}: {error}"
                    ) from error
        self._finish()

    def _request_range(self, start: int, end: int | None) -> tuple[port.ObjectFacts, bool]:
        """Request a range of the object; return the object's facts, and whether there are bytes to
        read.
        """
        store, key = self._store, self._key
        headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        known = getattr(self, "facts", None)
        if known is not None:
            headers["If-Match"] = f'"{known.etag}"'
        expected = (_OK, _PARTLY, _NONE, _CHANGED, _BEYOND)

        def read(
            response: manager_client.OpenResponse,
        ) -> tuple[manager_client.OpenResponse, port.ObjectFacts | None]:
            there = response.head.status not in (_NONE, _CHANGED)
            return response, _facts(key, response.head) if there else None

        request = store.make_request("GET", key, headers=headers)
        response, facts = store.client.send(request, expected, read, lend=True)
        self._connection = response.connection
        if facts is not None:
            there = response.head.status != _BEYOND
            if not there:
                self._finish()
            return facts, there
        self._finish()
        if known is None:
            raise store.missing_error(key)
        raise errors.ObjectChanged(
            f"{key} in {store.url} was replaced or deleted while it was read: read it again"
        )

    def _received_pieces(self) -> Iterator[bytes]:
        if self._connection is not None:
            yield from self._connection.pieces()

    def _finish(self) -> None:
        """Read the response to the end, so that the connection can be reused."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.read()
                self._store.client.give_back(connection)
            except (OSError, http1_client.BadResponse):
                connection.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class RemoteWriter(context_manager_bases.Abortable):
    """A new object that is being written (`port.Writer`): an unnamed temporary file, which is sent
    at `commit`.
    """

    def __init__(self, store: RemoteStore, key: str, *, create: bool) -> None:
        self._store = store
        self._key = key
        self._create = create
        self.bytes = 0
        with self._explained():
            if store.spool is not None:
                store.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=store.spool, buffering=_MIB)  # noqa: SIM115

    def write(self, piece: port.Data) -> None:
        with self._explained():
            self.bytes += self._file.write(piece)

    def commit(self) -> port.ObjectFacts:
        with self._explained():
            self._file.flush()
            path = Path(f"/proc/self/fd/{self._file.fileno()}")
        facts = self._store.write_file(self._key, path, create=self._create)
        self.abort()
        return facts

    def abort(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = errors.StoreFull if error.errno in file_writing.NO_ROOM else errors.StoreRefused
            raise kind(
                f"{self._key} cannot be kept in {self._store.spool or 'a temporary file'} until it "
                f"is whole: {error.strerror or error}. Set the worker's TMPDIR to a directory with "
                "room for the largest output of a part; nothing of it was left behind"
            ) from error

    def __del__(self) -> None:
        self.abort()


def _facts(key: str, head: http1_client.ResponseHead) -> port.ObjectFacts:
    headers = head.headers
    size = headers.get("content-range", "").rpartition("/")[2] or headers.get("content-length", "")
    try:
        return port.ObjectFacts(
            key, int(size), headers["etag"].strip('"'), float(headers[_MODIFIED])
        )
    except (KeyError, ValueError) as error:
        raise http1_client.BadResponse(
            f"a response about {key} without its size, ETag or time"
        ) from error


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(_MIB):
            yield piece
