"""What can go wrong with blobs and files: one class per reaction."""

from kilnwork.kit import errors


class DataError(errors.KilnError):
    """A value or file could not be kept or read."""


class BlobMissing(DataError):
    """There is no such blob: make the value again, or keep its Ref for as long as it is needed."""


class BlobDamaged(DataError):
    """A blob is not what was written: make the value again, and look after the disk."""


class BlobNotWritten(DataError):
    """The disk took no blob: free some room, or use another directory; nothing was left behind."""


class BlobsUnreachable(DataError):
    """The manager that keeps the blobs does not respond: try again when it does."""


class BlobsRefused(DataError):
    """The manager does not let us have its blobs; the message says why."""


class NotSplittable(DataError):
    """This file cannot be taken apart by lines; the message says what to do with it first."""


class FileChanged(DataError):
    """A file is not the one that was split: split it again."""


class InputRefused(DataError):
    """A file is not what it is said to be; the message says where, and what to do.

    `line`: number of the line or record, from 1; None: it is not about one.
    """

    def __init__(self, message: str | None = None, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class InputTooLarge(InputRefused):
    """A file is larger than is allowed: send less, or ask for a higher limit.

    `limit`: the most that is allowed, and `seen`: what was seen instead, both in `unit`. `remedy`:
    what to do.
    """

    def __init__(self, what: str, *, limit: int, seen: int, unit: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.limit, self.seen, self.unit, self.remedy = limit, seen, unit, remedy


class InputChanged(DataError):
    """The stored file is not the one that was indexed: upload it again, as a new job."""


class ManifestDamaged(DataError):
    """A manifest is not what was written: upload the file again, and look after the disk."""


class BadRecord(DataError):
    """A record is not what its format says; it goes to the errors file, or its part fails."""


class NotShippable(DataError):
    """This directory or module cannot be sent to workers; the message says what to change."""


class StoreError(DataError):
    """A store of files could not do what was asked of it."""


class ObjectMissing(StoreError):
    """There is no such object in the store."""


class ObjectExists(StoreError):
    """There is an object of that name, which was to be created: read that one."""


class ObjectChanged(StoreError):
    """The object is not the one that was to be replaced: read it again, then decide again."""


class ObjectDamaged(StoreError):
    """An object is not what was written; the message says what to do without it."""


class BadKey(StoreError):
    """Not a name that every store takes; the message says what is wrong with it."""


class StoreFull(StoreError):
    """The store has no room left: free some; nothing of what was written was left behind."""


class StoreUnreachable(StoreError):
    """The store does not respond: try again when it does."""


class StoreRefused(StoreError):
    """The store does not let us, or cannot be used at all; the message says why."""


class PondError(DataError):
    """Something in the directory of a pond, or of a source, could not be done.

    `reason`: one stable word in CamelCase, for conditions and for code that decides by it.
    """

    reason = "PondFailed"


class ManifestRefused(PondError):
    """A manifest is not one, or names files that cannot be; the message says which and why."""

    reason = "ManifestRefused"


class PondInUse(PondError):
    """Another agent has this directory: give each pond of a node a path of its own."""

    reason = "PondInUse"


class PondShared(PondInUse):
    """Another agent of the same pond has this directory: its nodes share a disk."""

    reason = "PondShared"


class PondFull(PondError):
    """There is no room for this data: release leases, raise `capacity`, or free the disk."""

    reason = "PondFull"


class DataCorrupt(PondError):
    """What comes is not what was pinned, each time something else: look after disk and network."""

    reason = "DataCorrupt"


class SourceChanged(PondError):
    """The source has other content than was pinned, or changes while it is read: pin it again."""

    reason = "SourceChanged"


class SourceMissing(PondError):
    """The source has no such file: look at its address and at the paths."""

    reason = "SourceMissing"


class SourceRefused(PondError):
    """The source may not be read, or not in this way; the message says what to change."""

    reason = "SourceRefused"


class SourceUnreachable(PondError):
    """The source or a peer does not respond, or stops in the middle: it is tried again."""

    reason = "SourceUnreachable"


class LeaseRefused(PondError):
    """There is no such lease in this namespace, or it is another one's."""

    reason = "LeaseRefused"
