"""Resumable uploads: consecutive stretches of bytes in a store.

Used by the server for uploads that are resumable by offset (draft-ietf-httpbis-resumable-upload).
Confirmed bytes are on disk; if two clients append at the same offset, only one succeeds. In a store
that is a directory an upload is one file (`local_resumable`). In clouds no object can be appended
to by any process; there, each stretch is an object of its own, `DIRECTORY/OFFSET`, created once,
and the server copies them when a job takes the upload as its input.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from kilnwork.data import errors
from kilnwork.data.stores import local, local_resumable, port

PIECE_BYTES = 32 << 20
"""Size of a stretch: not more than this is lost if a process is killed. Smaller ones cost more
syncs."""

_DIGITS = 19
"""Number of digits of 2**63 - 1, so that the order of keys is that of offsets."""


class ResumableUpload(Protocol):
    """The bytes of an upload so far, stored below a directory of a store."""

    directory: str
    """Key of the upload's directory, without a trailing slash; the directory contains nothing
    else."""

    def size(self) -> int:
        """Return the number of bytes of the upload."""
        ...

    def modified(self) -> float:
        """Return the time when the last bytes arrived (seconds of the store's wall clock), or 0 if
        none have arrived.
        """
        ...

    def read(self) -> Iterator[bytes]:
        """Yield all bytes of the upload, in pieces of at most 1 MiB."""
        ...

    def clear(self) -> None: ...

    def open_stretch(self, offset: int) -> port.Writer:
        """Return a writer for the next bytes, from `offset` on, which must be the current size.

        The bytes count once they are committed. Raises `ObjectChanged`, also later, if another
        client has appended.
        """
        ...


def open_upload(store: port.Store, directory: str) -> ResumableUpload:
    port.check_key(directory)
    if isinstance(store, local.LocalStore):
        return local_resumable.LocalResumableUpload(store, directory)
    return StretchUpload(store, directory)


def append(growing: ResumableUpload, offset: int, *, piece_bytes: int = PIECE_BYTES) -> "Appender":
    """Return an appender at `offset`, which must be the current size. Raises `ObjectChanged`, whose
    message has the size.
    """
    size = growing.size()
    if offset != size:
        raise errors.ObjectChanged(
            f"{growing.directory} has {size} bytes, so it cannot go on at {offset}: send from "
            f"{size}"
        )
    return Appender(growing, offset, piece_bytes)


class StretchUpload:
    """A `ResumableUpload` for any store, which keeps each stretch of bytes in an object of its
    own.
    """

    def __init__(self, store: port.Store, directory: str) -> None:
        self.store, self.directory = store, directory

    def size(self) -> int:
        return sum(facts.bytes for facts in self._pieces())

    def modified(self) -> float:
        return max((facts.modified for facts in self._pieces()), default=0.0)

    def read(self) -> Iterator[bytes]:
        for facts in self._pieces():
            with self.store.read(facts.key) as reading:
                yield from reading

    def clear(self) -> None:
        port.clear(self.store, self.directory + "/")

    def open_stretch(self, offset: int) -> port.Writer:
        return self.store.writer(f"{self.directory}/{offset:0{_DIGITS}}", create=True)

    def _pieces(self) -> Iterator[port.ObjectFacts]:
        """Yield the stretches from the start that follow each other without a gap."""
        size = 0
        for facts in self.store.list(self.directory + "/"):
            if int(facts.key.rpartition("/")[2]) != size:
                return
            size += facts.bytes
            yield facts


class Appender:
    """Writer that appends bytes to an upload. `offset`: offset of the next byte. For one thread at
    a time.

    Bytes are committed from time to time, and at the end of the `with` block, also if it ends with
    an error. After a `StoreError` the uncommitted bytes are discarded.
    """

    def __init__(self, growing: ResumableUpload, offset: int, piece_bytes: int) -> None:
        self._growing, self._piece_bytes = growing, piece_bytes
        self._new: port.Writer | None = None
        self.offset = offset

    def write(self, piece: port.Data) -> None:
        """Append bytes to the upload. Raises `StoreFull`, and `ObjectChanged` if another client
        appends too.
        """
        if not len(piece):
            return
        if self._new is None:
            self._new = self._growing.open_stretch(self.offset)
        self._new.write(piece)
        self.offset += len(piece)
        if self._new.bytes >= self._piece_bytes:
            self.commit()

    def commit(self) -> int:
        """Commit all bytes so far; return the size of the upload. Raises as `write`."""
        new, self._new = self._new, None
        if new is not None:
            with new:
                try:
                    new.commit()
                except errors.ObjectExists as error:
                    raise errors.ObjectChanged(
                        f"another client has written to {self._growing.directory} meanwhile: ask "
                        "how much is there, and send from there"
                    ) from error
        return self.offset

    def abort(self) -> None:
        """Discard uncommitted bytes; may be repeated."""
        new, self._new = self._new, None
        if new is not None:
            new.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, errors.StoreError):
            self.abort()
        else:
            self.commit()
