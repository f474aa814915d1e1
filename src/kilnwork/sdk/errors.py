"""What users of the SDK can catch: one class per reaction, all of them `KilnError`.

Public as `kilnwork.NAME`. An exception that a task function raised is not here: the driver raises
that one itself, with a `RemoteTraceback` as its cause. A class that cannot be imported or pickled
comes back as `TaskFailed`.
"""

from kilnwork.kit import errors

KilnError = errors.KilnError
ConfigurationError = errors.ConfigurationError


class NoSession(KilnError, RuntimeError):
    """No session is open here: start one with `with kiln.start():` or `with kiln.connect():`."""


class NotInTask(KilnError, RuntimeError):
    """This works only inside a running task; outside there is no task to speak of.

    Call it in the function that you submit, not where you submit it.
    """


class BadOption(errors.ConfigurationError, ValueError):
    """An option of a task function cannot be used."""


class NotPicklable(KilnError, TypeError):
    """A value cannot be sent to a worker.

    `path` leads to the smallest part that fails, as an expression: `arguments[0].lock`.
    """

    def __init__(self, message: str | None = None, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class TooManyFailed(KilnError):
    """A map was stopped, because more of its calls have failed than `max_failed` allows.

    Its cause is the error of the call that was one too many.
    """


class DispatcherLost(KilnError, ConnectionError):
    """The dispatcher does not respond any more; what it has accepted goes on without us."""


class TaskError(KilnError):
    """A task has no result. `task`: its id; `reason`: one of the reasons `kiln why` explains."""

    def __init__(
        self, message: str | None = None, *, task: str | None = None, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.reason = reason


class TaskFailed(TaskError):
    """A task failed, and its own exception cannot be raised here.

    `type`, `text`, `traceback`: of that exception, as the worker saw it; empty when there was none.
    """

    type: str = ""
    text: str = ""
    traceback: str = ""


class InputFailed(TaskError):
    """A task never ran, because one whose result it takes has failed: that error is the cause."""


class TaskLost(TaskError):
    """A task failed: the workers that ran it were lost more often than `max_losses`."""


class TaskTimedOut(TaskError, TimeoutError):
    """A task did not end in time: `timeout`, `total_timeout` or `pending_timeout` of its options.

    `future.result(timeout=)` raises the plain `TimeoutError` instead: there the task goes on.
    """


class Cancelled(TaskError):
    """A task was cancelled. Also raised inside it: clean up quickly and let it pass."""


class JobFailed(KilnError):
    """A Job has no result: it Failed, was Killed, was refused (AdmissionError), or was deleted.

    `job`: its name; `phase`: the one it ended in, empty when its object is gone; `reason`: why, as
    one stable word.
    """

    def __init__(
        self, message: str | None = None, *, job: str = "", phase: str = "", reason: str = ""
    ) -> None:
        super().__init__(message)
        self.job = job
        self.phase = phase
        self.reason = reason


class KeyTaken(TaskError):
    """The key already names a call of another function or with other arguments: choose another."""


class VariableMissing(TaskError):
    """A Secret, ConfigMap or key that the task's `env` names does not exist, or is no text.

    It names the variable, the key, the object and the namespace.
    """


class RemoteTraceback(Exception):
    """Cause of an exception that comes from a task: prints the traceback of where it happened."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


PUBLIC: tuple[type[Exception], ...] = (
    KilnError,
    NoSession,
    NotInTask,
    BadOption,
    NotPicklable,
    TooManyFailed,
    DispatcherLost,
    TaskError,
    TaskFailed,
    InputFailed,
    TaskLost,
    TaskTimedOut,
    Cancelled,
    ConfigurationError,
    JobFailed,
    KeyTaken,
    VariableMissing,
    RemoteTraceback,
)
"""What `kilnwork` shows under its own name; tracebacks say `kilnwork.TaskFailed`."""

for _class in PUBLIC:
    _class.__module__ = "kilnwork"
