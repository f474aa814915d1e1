"""Intake of a job's input: indexes the input and writes it to the store as it arrives.

Used by `submit` and `upload_handlers`; only small inputs are processed on the event loop, others in
threads. The input is invisible until it is complete. A small input stays in memory: the service
stores it in the job's row, which saves three synced files for each of thousands of small jobs.
"""

import hashlib
from collections.abc import Callable

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import disk_checks
from kilnwork.data.records import gzip_unpacker, intake, unsupported_formats, whole_file_indexing
from kilnwork.data.stores import local, port
from kilnwork.server import errors
from kilnwork.server.jobs import body, settings

MIB = 1 << 20


class DiskRoom:
    """The free disk space of a store, which is checked before a body of known length is read.

    Nothing is checked for stores that are not directories. The check cannot see bodies of unknown
    length, or several bodies that arrive at once: while those are written, the store itself fails
    before the space that is reserved for the journal is used up.
    """

    def __init__(self, store: port.Store) -> None:
        self._directory = store.directory if isinstance(store, local.LocalStore) else None

    def free(self) -> int | None:
        """Return how many more bytes can be stored, or None if that is unknown."""
        try:
            return None if self._directory is None else disk_checks.usable_bytes(self._directory)
        except FileNotFoundError:  # the directory is created with the first object
            return None

    def check(self, size: int) -> None:
        """Raise InsufficientStorage unless `size` more bytes fit.

        Bodies of up to `body.INLINE_BYTES` always pass: they are stored in the journal.
        """
        if size <= body.INLINE_BYTES:
            return
        free = self.free()
        if free is not None and size > free:
            raise errors.InsufficientStorage(
                f"the file has {size // MIB} MiB, and the server's disk has room for "
                f"{max(free, 0) // MIB}: delete jobs, or give it more; nothing of it was kept"
            )


class JobInput:
    """Sink for the input of a job: pass its bytes to `process`, then call `finish`, or else
    `abort`.

    `opened` creates the object's writer once the input is too large to stay in memory. If it is
    None, nothing is stored and the input is only indexed.
    """

    def __init__(
        self,
        spec: filejobs.FileJobSpec,
        opened: Callable[[], port.Writer] | None,
        *,
        chosen: settings.JobsApiSettings,
    ) -> None:
        self.spec = spec
        self._most_bytes = chosen.most_stored_bytes
        self._unpacking = gzip_unpacker.UnpackLimits(chosen.unpacked_bytes, chosen.unpack_ratio)
        self._opened = opened
        self._writer: port.Writer | None = None
        self._small: bytearray | None = bytearray()
        self._only: bytes | None = None
        """The first piece, as long as it may be a complete plain file."""
        self._intake: intake.Intake | None = None
        if not whole_file_indexing.likely(spec):
            self._begin()

    @property
    def small(self) -> bool:
        """Whether the whole input so far is in memory."""
        return self._small is not None

    @property
    def slow(self) -> bool:
        """Whether the next bytes may take much longer to process than their number suggests."""
        return self._intake is not None and self._intake.slow

    @property
    def stored(self) -> bool:
        """Whether some bytes of the input are, or were, in the store."""
        return self._writer is not None

    def process(self, piece: bytes) -> None:
        """Process the next bytes of the input. Raises `InputRefused`, `StoreError`."""
        taker = self._intake
        if taker is None:
            fits = len(piece) <= body.INLINE_BYTES and unsupported_formats.GZIP not in piece
            if fits and self._only is None:
                self._only = piece
                return
            taker = self._begin()
        for part in taker.feed(piece):
            self._keep(part)

    def _begin(self) -> intake.Intake:
        """Return a new indexer, which has processed the bytes that are in memory so far."""
        self._intake = taker = intake.Intake(
            self.spec, most_bytes=self._most_bytes, unpacking=self._unpacking
        )
        if self._only is not None:
            for part in taker.feed(self._only):
                self._keep(part)
            self._only = None
        return taker

    def finish(self) -> tuple[filejobs.Manifest, bytes | None]:
        """Complete and store the input. Return its manifest and, if it is small, its bytes.

        Raises the exceptions of `process`, and BadRequest for an empty file.
        """
        if self._only is not None and len(self._only) <= (self._most_bytes or body.INLINE_BYTES):
            found = whole_file_indexing.manifest(self._only, self.spec)
            if found is not None:
                return found, self._only
        taker = self._intake or self._begin()
        rest, manifest = taker.finish()
        if rest:
            self._keep(rest)
        if not manifest.lines:
            raise errors.BadRequest("the file is empty: there is nothing to do")
        if self._writer is not None:
            self._writer.commit()
        return manifest, None if self._small is None else bytes(self._small)

    def abort(self) -> None:
        """Discard the input, which is not finished."""
        if self._writer is not None:
            self._writer.abort()

    def _keep(self, data: bytes) -> None:
        if self._small is not None:
            if len(self._small) + len(data) <= body.INLINE_BYTES:
                self._small += data
                return
            data, self._small = bytes(self._small) + data, None
            if self._opened is not None:
                self._writer = self._opened()
        if self._writer is not None:
            self._writer.write(data)


def read_alike(one: filejobs.FileJobSpec, other: filejobs.FileJobSpec) -> bool:
    """Return whether both specs read and split a file in the same way."""
    return (one.input, one.items_per_part, one.bytes_per_part, one.max_parts) == (
        *(other.input, other.items_per_part, other.bytes_per_part, other.max_parts),
    )


def fingerprint(spec: filejobs.FileJobSpec, content: str) -> bytes:
    """Return a fingerprint that distinguishes a repeated request from a different one.

    It covers the work and the digest of the bytes to work on (`content`), however they are sent.
    """
    digest = hashlib.sha256(msgspec.json.encode(spec, order="deterministic"))
    digest.update(content.encode())
    return digest.digest()
