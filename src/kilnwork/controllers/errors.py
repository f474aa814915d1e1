"""Errors of the controllers, beside those of the Kubernetes API."""

from kilnwork.kit import errors


class ControllerError(errors.KilnError):
    """A controller cannot do its work."""


class NotYet(ControllerError):
    """The controllers' caches are not complete yet; ask again."""
