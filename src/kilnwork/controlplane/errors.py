"""Errors of the embedded control plane: one class for each reaction of the caller.

Error responses to HTTP clients are `apiserver.statuses.StatusError`, which derives from the base
class here.
"""

from kilnwork.kit import errors


class ControlPlaneError(errors.KilnError):
    """Base class of all errors of the embedded control plane."""


class Superseded(ControlPlaneError):
    """The object has changed since it was read: read it again and decide again."""


class TooOld(ControlPlaneError):
    """The changes since that sequence number are no longer in the log: list the objects again."""


class ObjectTooLarge(ControlPlaneError):
    """The object would exceed the size limit of the store; the write was discarded."""


class StoreFailed(ControlPlaneError):
    """The store cannot be written (disk full, broken or closed); the write was discarded."""


class StoreBroken(ControlPlaneError):
    """This version cannot use the database file; the message says why."""
