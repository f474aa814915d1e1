"""Errors of the local node, one class per reaction.

Reactions: `ShimAway`: open the link to the shim again and repeat. `ShimRefused`: a bug; see the
message. `InputsNotReady`: the Pod waits; try again soon. `Unsupported`: the Pod fails; a retry
cannot help. `NameTaken`: stop what runs here.
"""

from kilnwork.kit import errors


class NodeError(errors.KilnError):
    """Base class of errors of the local node."""


class ShimAway(NodeError):
    """The connection to the shim was lost."""


class WrongShim(ShimAway):
    """The running shim has another version."""


class ShimRefused(NodeError):
    """The shim refused a request."""


class NameTaken(NodeError):
    """Another process runs the node of this name now. The message names the process."""


class InputsNotReady(NodeError):
    """Something that the container needs does not exist yet.

    `reason` is the waiting reason in the container's status.
    """

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


class Unsupported(NodeError):
    """The Pod uses something that the local node does not support."""
