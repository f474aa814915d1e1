"""Errors of the controllers, in addition to those of the Kubernetes API."""

from kilnwork.kit import errors


class ControllerError(errors.KilnError):
    """Base of the errors of controllers."""


class NotYet(ControllerError):
    """The controllers' caches are not complete yet; try again."""
