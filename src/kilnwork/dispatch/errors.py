"""Errors of the dispatcher: one class for each way in which a caller reacts."""

from kilnwork.kit import errors


class DispatchError(errors.KilnError):
    """The dispatcher could not do what was requested."""


class IllegalTransition(DispatchError):
    """The machine attempted a transition that its table does not allow: a bug."""


class RunRefused(DispatchError):
    """This run may not start: the previous run succeeded, and running it again needs `force`."""


class HubStopped(DispatchError):
    """The hub is stopping or lost its journal; use the hub that follows it."""


class JournalLocked(DispatchError):
    """Another process holds this journal; the message names it."""


class JournalUnreadable(DispatchError):
    """The file is not a journal, or was written by a newer kilnwork; use another directory."""


class StaleEpoch(DispatchError):
    """Another dispatcher took over this journal; this dispatcher must end at once."""


class TaskTooLarge(DispatchError):
    """Spec and inputs of the task do not fit a frame of the channel; make them smaller."""
