"""What can go wrong in the dispatcher: one class per reaction."""

from kilnwork.kit import errors


class DispatchError(errors.KilnError):
    """The dispatcher could not do what was requested."""


class IllegalTransition(DispatchError):
    """The machine was about to make a move that its table does not have: a bug."""


class RunRefused(DispatchError):
    """This run may not start: the run before succeeded, and running it again needs force."""


class HubStopped(DispatchError):
    """The hub is stopping or lost its journal; try the next one."""


class JournalLocked(DispatchError):
    """Another process holds this journal; the message names it."""


class JournalUnreadable(DispatchError):
    """The journal was written by a newer kilnwork, or is no journal; use another directory."""


class StaleEpoch(DispatchError):
    """Another dispatcher took over this journal; this one must end at once."""


class TaskTooLarge(DispatchError):
    """Spec and inputs of a task do not fit a frame of the channel; make them smaller."""
