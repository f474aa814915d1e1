"""Errors of a link: one class for each way in which a caller reacts.

Used by both ends. A malformed or oversized frame closes its link and affects no other link.
"""

from kilnwork.kit import errors


class ChannelError(errors.KilnError):
    """A link of the channel failed."""


class MalformedFrame(ChannelError):
    """The peer sent bytes that are not a frame, or not a message of this protocol; close the
    link.
    """


class FrameTooLarge(MalformedFrame):
    """A frame is larger than the channel allows; close the link, or make the message smaller."""


class LinkClosed(ChannelError):
    """The link is closed; connect again and resume."""


class LinkForked(LinkClosed):
    """The link belongs to the process from which this process was forked, and cannot be used
    here.
    """


class LinkRefused(ChannelError):
    """The dispatcher refused the link.

    `retry`: whether to try again later.
    """

    def __init__(self, reason: str, message: str, *, retry: bool) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.retry = retry
