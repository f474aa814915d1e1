"""What can go wrong inside the embedded control plane: one class per reaction of the caller.

Responses to HTTP clients are `apiserver.statuses.StatusError`, which derives from the root here.
"""

from kilnwork.kit import errors


class ControlPlaneError(errors.KilnError):
    """The embedded control plane could not do it."""


class Superseded(ControlPlaneError):
    """The object has changed since it was read: read it again and decide again."""


class TooOld(ControlPlaneError):
    """The changes since that sequence number are no longer kept: list again."""


class ObjectTooLarge(ControlPlaneError):
    """The object would be larger than the store keeps; nothing of this write was kept."""


class StoreFailed(ControlPlaneError):
    """The store could not be written (disk full or broken); nothing of this write was kept."""


class StoreBroken(ControlPlaneError):
    """The database file cannot be used by this version; the message says why."""
