"""What can go wrong on the local node, one class per reaction.

`ShimAway`: open the shim again and repeat. `ShimRefused`: a fault of ours, look at the message.
`NotYet`: the Pod waits, look again soon. `Unsupported`: the Pod fails, a retry cannot help.
`NameTaken`: end what runs here.
"""

from kilnwork.kit import errors


class NodeError(errors.KilnError):
    """The local node cannot do this."""


class ShimAway(NodeError):
    """The shim has gone away."""


class WrongShim(ShimAway):
    """The running shim is of another version."""


class ShimRefused(NodeError):
    """The shim refused a request."""


class NameTaken(NodeError):
    """Another process runs the node of this name now; the text says which."""


class NotYet(NodeError):
    """Something that the container needs does not exist yet.

    `reason` is the waiting reason in the container's status.
    """

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


class Unsupported(NodeError):
    """The Pod asks for something that the local node does not offer."""
