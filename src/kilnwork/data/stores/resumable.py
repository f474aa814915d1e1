"""An upload that goes on where it stopped: stretches of bytes that follow each other.

Used by the server for uploads that are resumable by offset (draft-ietf-httpbis-resumable-upload).
What is confirmed is on disk; of two who append at the same offset one wins. Where a store is
a directory, that is one file (`local_resumable`). No cloud lets an object grow from any process, so
there, each stretch that came is an object of its own, `DIRECTORY/OFFSET`, created once: the client
that completes the upload copies it.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from kilnwork.data import errors
from kilnwork.data.stores import local, local_resumable, port

PIECE_BYTES = 32 << 20
"""Of a stretch; more than this is never lost, whichever process is killed. Less costs more
syncs."""

_DIGITS = 19
"""Of 2**63 - 1, so that keys are in the order of offsets."""


class Growing(Protocol):
    """What has come of an upload, below a directory of a store."""

    directory: str
    """Key without slash at its end, below which nothing else is."""

    def size(self) -> int:
        """How many bytes are there."""
        ...

    def modified(self) -> float:
        """When the last of it came (wall clock of the store, seconds); 0 if nothing has."""
        ...

    def read(self) -> Iterator[bytes]:
        """All of it, in pieces of at most 1 MiB."""
        ...

    def clear(self) -> None: ...

    def stretch(self, offset: int) -> port.Writer:
        """The next bytes, from `offset` on, which is the size; there when they are committed.
        Raises `ObjectChanged`, also later on, when another client has appended."""
        ...


def opened(store: port.Store, directory: str) -> Growing:
    port.check_key(directory)
    if isinstance(store, local.LocalStore):
        return local_resumable.LocalGrowing(store, directory)
    return Pieces(store, directory)


def append(growing: Growing, offset: int, *, piece_bytes: int = PIECE_BYTES) -> "Appender":
    """Go on at `offset`, which must be the size. Raises `ObjectChanged`, which tells it."""
    size = growing.size()
    if offset != size:
        raise errors.ObjectChanged(
            f"{growing.directory} has {size} bytes, so it cannot go on at {offset}: send from "
            f"{size}"
        )
    return Appender(growing, offset, piece_bytes)


class Pieces:
    """A `Growing` in any store."""

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

    def stretch(self, offset: int) -> port.Writer:
        return self.store.writer(f"{self.directory}/{offset:0{_DIGITS}}", create=True)

    def _pieces(self) -> Iterator[port.ObjectFacts]:
        """Those that follow each other without a gap."""
        size = 0
        for facts in self.store.list(self.directory + "/"):
            if int(facts.key.rpartition("/")[2]) != size:
                return
            size += facts.bytes
            yield facts


class Appender:
    """What comes is kept from time to time, and what has come when the `with` block ends, however
    it ends; unless the store is full. `offset`: of the next byte. For one thread at a time."""

    def __init__(self, growing: Growing, offset: int, piece_bytes: int) -> None:
        self._growing, self._piece_bytes = growing, piece_bytes
        self._new: port.Writer | None = None
        self.offset = offset

    def write(self, piece: port.Data) -> None:
        """Append. Raises `StoreFull`; `ObjectChanged` when another client appends too."""
        if not len(piece):
            return
        if self._new is None:
            self._new = self._growing.stretch(self.offset)
        self._new.write(piece)
        self.offset += len(piece)
        if self._new.bytes >= self._piece_bytes:
            self.keep()

    def keep(self) -> int:
        """Have on disk what has come; returns the size. Raises as `write`."""
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
        """Leave nothing of what was not kept; may be repeated."""
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
            self.keep()
