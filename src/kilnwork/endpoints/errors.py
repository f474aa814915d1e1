"""Errors for a manager that cannot be reached or used: one class for each reaction to them."""

from kilnwork.kit import errors


class EndpointError(errors.ConfigurationError):
    """The manager cannot be used from here."""


class AccessDenied(EndpointError):
    """The manager, or the API server in front of it, denies access to the user."""


class ManagerNotReady(EndpointError):
    """There is no manager, or it does not serve yet: ask again later."""


def unanswered(server: str, why: object) -> str:
    """Return the error text of commands and drivers for a server that does not respond."""
    return (
        f"{server} does not respond ({why}): is the server running, and is this the right "
        "kubeconfig or address?"
    )
