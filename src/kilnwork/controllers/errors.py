"""What can go wrong in the controllers, beyond what the Kubernetes API answers."""

from kilnwork.kit import errors


class ControllerError(errors.KilnError):
    """A controller cannot do its work."""


class NotYet(ControllerError):
    """The controllers have not heard enough yet to answer; ask again."""
