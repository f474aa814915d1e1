"""Errors of blobs and files: one class per reaction."""

from kilnwork.kit import errors


class DataError(errors.KilnError):
    """A value or file could not be stored or read."""


class BlobMissing(DataError):
    """The blob does not exist: make the value again, and keep its Ref for as long as it is
    needed."""


class BlobDamaged(DataError):
    """The content of a blob differs from the content that was written: make the value again, and
    check the disk.
    """


class BlobNotWritten(DataError):
    """A blob could not be written: free some space, or use another directory. Nothing was left
    behind."""


class BlobsUnreachable(DataError):
    """The manager that stores the blobs does not respond: retry later."""


class BlobsRefused(DataError):
    """The manager refuses access to its blobs; the message says why."""


class NotSplittable(DataError):
    """This file cannot be split by lines; the message says what to do with it first."""


class FileChanged(DataError):
    """The file has changed since it was split: split it again."""


class InputRefused(DataError):
    """A file does not have the declared format; the message says where, and what to do.

    `line`: number of the line or record, from 1; None if the error is not about a single one.
    """

    def __init__(self, message: str | None = None, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class InputTooLarge(InputRefused):
    """A file is larger than allowed: send less, or ask for a higher limit.

    `limit`: the maximum, and `seen`: the actual value, both in `unit`. `remedy`: what to do.
    """

    def __init__(self, what: str, *, limit: int, seen: int, unit: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.limit, self.seen, self.unit, self.remedy = limit, seen, unit, remedy


class InputChanged(DataError):
    """The stored file has changed since it was indexed: upload it again, as a new job."""


class ManifestDamaged(DataError):
    """The content of a manifest differs from the content that was written: upload the file again,
    and check the disk.
    """


class BadRecord(DataError):
    """A record does not have the declared format; it is reported in the errors file, or its part
    fails."""


class NotShippable(DataError):
    """This directory or module cannot be sent to workers; the message says what to change."""


class StoreError(DataError):
    """An operation of a store of files failed."""


class ObjectMissing(StoreError):
    """The object does not exist in the store."""


class ObjectExists(StoreError):
    """The object to be created exists already: read the existing object."""


class ObjectChanged(StoreError):
    """The object to be replaced has changed: read it again, then decide again."""


class ObjectDamaged(StoreError):
    """The content of an object differs from the content that was written; the message says how to
    proceed without it.
    """


class BadKey(StoreError):
    """The key is not valid in every store; the message says what is wrong with it."""


class StoreFull(StoreError):
    """The store has no space left: free some space. None of the data was stored."""


class StoreUnreachable(StoreError):
    """The store does not respond: retry later."""


class StoreRefused(StoreError):
    """The store refuses access, or cannot be used at all; the message says why."""


class PondError(DataError):
    """An operation on the directory of a pond, or of a source, failed.

    `reason`: a stable word in CamelCase, for conditions and for code that branches on it.
    """

    reason = "PondFailed"


class ManifestRefused(PondError):
    """A manifest is invalid, or names invalid files; the message says which and why."""

    reason = "ManifestRefused"


class PondInUse(PondError):
    """Another agent uses this directory: give each pond of a node a path of its own."""

    reason = "PondInUse"


class PondShared(PondInUse):
    """The directory is in use by another agent of the same pond, because nodes of the pond share a
    disk.
    """

    reason = "PondShared"


class PondFull(PondError):
    """There is not enough space for this data: release leases, raise `capacity`, or free the
    disk."""

    reason = "PondFull"


class DataCorrupt(PondError):
    """The received content differed from the pinned content in every try: check disk and
    network.
    """

    reason = "DataCorrupt"


class SourceChanged(PondError):
    """The content of the source differs from the pinned content, or changes while it is read: pin
    it again."""

    reason = "SourceChanged"


class SourceMissing(PondError):
    """The source has no such file: check its address and the paths."""

    reason = "SourceMissing"


class SourceRefused(PondError):
    """The source cannot be read with these permissions, or in this way; the message says what to
    change."""

    reason = "SourceRefused"


class SourceUnreachable(PondError):
    """The source or a peer does not respond, or the connection broke off: the agent retries."""

    reason = "SourceUnreachable"


class LeaseRefused(PondError):
    """There is no such lease in this namespace, or the requested lease is not valid; the message
    says why.
    """

    reason = "LeaseRefused"
