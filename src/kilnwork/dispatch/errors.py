"""Errors of the dispatcher, one class for each reaction."""

from kilnwork.kit import errors


class DispatchError(errors.KilnError):
    """The dispatcher could not do what was requested."""


class IllegalTransition(DispatchError):
    """The machine was about to make a transition that its table does not allow: a bug."""


class RunRefused(DispatchError):
    """This run may not start: the previous run succeeded, and running it again needs `force`."""


class HubStopped(DispatchError):
    """The hub is stopping or lost its journal; use the next one."""


class JournalLocked(DispatchError):
    """Another process holds this journal; the message names it."""


class JournalUnreadable(DispatchError):
    """The file is no journal, or a newer kilnwork wrote it; use another directory."""


class StaleEpoch(DispatchError):
    """Another dispatcher took over this journal; this one must end at once."""


class TaskTooLarge(DispatchError):
    """Spec and inputs of a task do not fit a frame of the channel; make them smaller."""
