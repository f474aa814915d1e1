"""Resumable upload in a local store: one file to which bytes are appended.

Used by `resumable_uploads`, and by `server.jobs` to link an upload. `DIRECTORY/bytes` is the file;
`DIRECTORY/kept` says how many of its bytes are on disk and confirmed. Bytes after those belong to
no client, and are cut off before more are written. A client that begins to append rewrites `kept`,
which changes its etag: an earlier client can then write no more, since each write checks that etag
under the directory's lock. When the upload is complete, `link` gives the file a second name, so
that a job has it as its input without a copy; nothing is appended after that.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.data import context_manager_bases, errors
from kilnwork.data.stores import directories, file_writing, local, port

_BYTES, _KEPT = "bytes", "kept"
_SEALED = "sealed"


class KeptState(NamedTuple):
    """Content of `DIRECTORY/kept`: the number of confirmed bytes, and whether the upload ends with
    them.

    `etag`: entity tag of the file, "" if it does not exist.
    """

    bytes: int = 0
    sealed: bool = False
    etag: str = ""


class LocalResumableUpload:
    """An upload in a local store (`resumable_uploads.ResumableUpload`)."""

    def __init__(self, store: local.LocalStore, directory: str) -> None:
        self.store = store
        self.directory = directory
        self._last = ""
        """Etag of `kept` after the last stretch, for the next one; "" while a stretch is open."""

    def size(self) -> int:
        """Return the number of confirmed bytes."""
        return self._read_kept().bytes

    def modified(self) -> float:
        """Return the time when the last bytes arrived (wall clock seconds), or 0 if none have
        arrived.
        """
        try:
            return self.store.head(self._key(_KEPT)).modified
        except errors.ObjectMissing:
            return 0.0

    def read(self) -> Iterator[bytes]:
        """Yield all confirmed bytes, in pieces of at most 1 MiB."""
        size = self.size()
        if size:
            with self.store.read(self._key(_BYTES), end=size) as reading:
                yield from reading

    def clear(self) -> None:
        port.clear(self.store, self.directory + "/")

    def open_stretch(self, offset: int) -> "LocalStretch":
        """Return a writer for the next bytes, from `offset` on. Raises `ObjectChanged` unless
        `offset` is the current size.
        """
        kept, last = self._read_kept(), self._last
        self._last = ""
        if kept.sealed or kept.bytes != offset:
            raise self.changed_error()
        mine = last if last and last == kept.etag else self._write_kept(offset, last=kept.etag)
        return LocalStretch(self, offset, mine)

    def open(self) -> int:
        """Return a descriptor of the file, for reading the whole upload. Raises `StoreError`."""
        with file_writing.explained(self.store.directory, self._key(_BYTES)):
            return os.open(self.store.path(self._key(_BYTES)), os.O_RDONLY | os.O_CLOEXEC)

    def link(self, key: str) -> bool:
        """Make the upload available as the object `key` as well, which must not exist. Return False
        if the file system has no hard links.

        Nothing can be appended after that. If one name is deleted, the other stays valid. Raises
        `ObjectExists`, `ObjectChanged`, `ObjectMissing`.
        """
        kept = self._read_kept()
        if not kept.etag:
            raise errors.ObjectMissing(f"there is no {self.directory} in {self.store.directory}")
        if not kept.sealed:
            self._write_kept(kept.bytes, last=kept.etag, sealed=True)
        source = self.store.path(self._key(_BYTES))
        with file_writing.explained(self.store.directory, key):
            if source.stat().st_size != kept.bytes:
                with self._locked():
                    os.truncate(source, kept.bytes)  # drop the bytes of a killed process
            return directories.link(source, self.store.path(key), above=self.store.directory)

    def confirm(self, size: int, *, mine: str) -> None:
        """Record that `size` bytes of the upload are on disk. `mine`: see `writing`. Raises
        `ObjectChanged`.
        """
        self._last = self._write_kept(size, last=mine)

    def _write_kept(self, size: int, *, last: str, sealed: bool = False) -> str:
        """Write the file `kept` if its etag is still `last` ("": it does not exist); return the new
        etag.
        """
        text = f"{size} {_SEALED}" if sealed else str(size)
        try:
            facts = self.store.put(
                self._key(_KEPT), text.encode(), create=not last, if_match=last or None
            )
        except (errors.ObjectExists, errors.ObjectChanged, errors.ObjectMissing) as error:
            raise self.changed_error() from error
        return facts.etag

    @contextlib.contextmanager
    def writing(self, mine: str) -> Iterator[None]:
        """Prevent other clients from beginning to append during the block.

        Raises `ObjectChanged` if another client has begun to append since the file `kept` had the
        etag `mine`.
        """
        with self._locked():
            if self._kept_etag() != mine:
                raise self.changed_error()
            yield

    def open_to_write(self) -> int:
        """Return a descriptor of the file for writing; it is created if it does not exist."""
        path = self.store.path(self._key(_BYTES))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def changed_error(self) -> errors.ObjectChanged:
        """Return the error for an upload to which another client appends."""
        return errors.ObjectChanged(
            f"another client has written to {self.directory} meanwhile: ask how much is there, and "
            "send from there"
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with directories.locked(self.store.path(self.directory)):
                yield
        except FileNotFoundError as error:  # it was removed
            raise self.changed_error() from error

    def _read_kept(self) -> KeptState:
        try:
            with self.store.read(self._key(_KEPT)) as reading:
                size, _, rest = b"".join(reading).decode().partition(" ")
                return KeptState(int(size), rest == _SEALED, reading.facts.etag)
        except errors.ObjectMissing:
            return KeptState()
        except ValueError as error:
            raise errors.ObjectDamaged(
                f"{self._key(_KEPT)} in {self.store.directory} is no number: delete the upload, "
                "and send it again"
            ) from error

    def _kept_etag(self) -> str:
        try:
            return self.store.head(self._key(_KEPT)).etag
        except errors.ObjectMissing:
            return ""

    def _key(self, name: str) -> str:
        return f"{self.directory}/{name}"


class LocalStretch(context_manager_bases.Abortable):
    """Bytes that are being appended to the confirmed bytes of an upload (`port.Writer`)."""

    def __init__(self, growing: LocalResumableUpload, offset: int, mine: str) -> None:
        self._descriptor = -1
        self._growing, self._offset, self._mine = growing, offset, mine
        store, key = growing.store, growing.directory
        with file_writing.explained(store.directory, key), growing.writing(mine):
            self._descriptor = growing.open_to_write()
            os.ftruncate(self._descriptor, offset)  # drop bytes that no client has confirmed
        self._filling = file_writing.FileWriter(store.directory, key, self._descriptor, at=offset)

    @property
    def bytes(self) -> int:
        return self._filling.at - self._offset

    def write(self, piece: port.Data) -> None:
        with self._growing.writing(self._mine):
            self._filling.write(piece)

    def commit(self) -> port.ObjectFacts:
        """Sync and confirm the bytes, as `Writer.commit`."""
        key, size = self._growing.directory, self._filling.at
        with file_writing.explained(self._growing.store.directory, key):
            os.fsync(self._descriptor)
        self._growing.confirm(size, mine=self._mine)
        self._close()
        return port.ObjectFacts(key, self.bytes, "", 0.0)

    def abort(self) -> None:
        if self._descriptor >= 0:
            mine = self._growing.writing(self._mine)
            with contextlib.suppress(errors.StoreError, OSError), mine:
                os.ftruncate(self._descriptor, self._offset)  # frees the space at once
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self._close()
