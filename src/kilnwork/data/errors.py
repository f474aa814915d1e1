"""What can go wrong with blobs and files: one class per reaction."""

from kilnwork.kit import errors


class DataError(errors.KilnError):
    """A value or file could not be kept or read."""


class BlobMissing(DataError):
    """There is no such blob: make the value again, or keep its Ref for as long as it is needed."""


class BlobDamaged(DataError):
    """A blob is not what was written: make the value again, and look after the disk."""


class BlobNotWritten(DataError):
    """The disk took no blob: free some room, or use another folder; nothing was left behind."""


class BlobsUnreachable(DataError):
    """The manager that keeps the blobs does not answer: try again when it does."""


class BlobsRefused(DataError):
    """The manager does not let us have its blobs; the message says why."""


class NotSplittable(DataError):
    """This file cannot be taken apart by lines; the message says what to do with it first."""


class FileChanged(DataError):
    """A file is not the one that was split: split it again."""


class NotShippable(DataError):
    """This folder or module cannot be sent to workers; the message says what to change."""
