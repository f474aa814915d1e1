"""The exceptions of the SDK that users can catch: subclasses of `KilnError`, one per reaction.

Public as `kilnwork.NAME`. `RemoteTraceback` alone is no `KilnError`: it is only ever a cause. An
exception that a task function raised is not listed here: the driver raises the original, with a
`RemoteTraceback` as its cause. An exception whose class cannot be imported or pickled comes back as
`TaskFailed`.
"""

from kilnwork.kit import errors

KilnError = errors.KilnError
ConfigurationError = errors.ConfigurationError


class NoSession(KilnError, RuntimeError):
    """No session is open in this process: start one with `with kiln.start():` or `with
    kiln.connect():`.
    """


class NotInTask(KilnError, RuntimeError):
    """An operation that works only inside a running task was used outside of a task.

    Call it in the function that you submit, not in the code that submits it.
    """


class BadOption(errors.ConfigurationError, ValueError):
    """An option or argument is invalid: of a task function, template, job, SyncSet or step."""


class NotPicklable(KilnError, TypeError):
    """A value cannot be sent to a worker.

    `path` leads to the smallest part that fails, as an expression: `arguments[0].lock`.
    """

    def __init__(self, message: str | None = None, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class TooManyFailed(KilnError):
    """A map was stopped because more of its calls failed than `max_failed` allows.

    Its cause is the error of the call that exceeded the limit.
    """


class DispatcherLost(KilnError, ConnectionError):
    """The dispatcher no longer responds; tasks that it has accepted continue without this
    session.
    """


class TaskError(KilnError):
    """A task has no result. `task`: the id of the task; `reason`: one of the reasons that `kiln
    why` explains.
    """

    def __init__(
        self, message: str | None = None, *, task: str | None = None, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.task = task
        self.reason = reason


class TaskFailed(TaskError):
    """A task failed, and its own exception cannot be raised in this process.

    `type`, `text`, `traceback`: the type, text and traceback of that exception, as the worker saw
    it; empty if there was none.
    """

    type: str = ""
    text: str = ""
    traceback: str = ""


class InputFailed(TaskError):
    """A task never ran because one of its inputs failed; the cause is that input's error."""


class TaskLost(TaskError):
    """A task failed because the workers that ran it were lost more often than `max_losses`
    allows.
    """


class TaskTimedOut(TaskError, TimeoutError):
    """A task did not finish within its `timeout`, `total_timeout` or `pending_timeout`.

    `future.result(timeout=)` raises the plain `TimeoutError` instead: in that case the task
    continues.
    """


class Cancelled(TaskError):
    """A task was cancelled. The exception is also raised inside the task: clean up quickly and do
    not suppress it."""


class JobFailed(KilnError):
    """A Job or a generation of a SyncSet has no result.

    It Failed, was Killed, was refused (AdmissionError), or was deleted; or a newer generation has
    replaced it. `job`: the name of the Job or SyncSet; `phase`: the final phase, empty if the
    object was deleted; `reason`: why there is no result, as one stable word.
    """

    def __init__(
        self, message: str | None = None, *, job: str = "", phase: str = "", reason: str = ""
    ) -> None:
        super().__init__(message)
        self.job = job
        self.phase = phase
        self.reason = reason


class KeyTaken(TaskError):
    """The key already names a call of another function or with other arguments: choose another
    key.
    """


class VariableMissing(TaskError):
    """A Secret, ConfigMap or key that the task's `env` names does not exist or is not text.

    The message names the variable, the key, the object and the namespace.
    """


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in a task; shows the traceback from the worker."""

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
"""Exceptions that `kilnwork` exports under its own name: tracebacks show `kilnwork.TaskFailed`."""

for _class in PUBLIC:
    _class.__module__ = "kilnwork"
