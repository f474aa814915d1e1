"""The context of a running task: `kiln.context()`.

Used by task functions, and by the code that runs them (the worker's slots, `kilnwork.testing`),
which calls `begin` and `end` around the call. Not a way to pass arguments.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from kilnwork.kit import ids
from kilnwork.sdk import errors

Report = Callable[[float | None, str], None]


class Context:
    """The running attempt of a task: its ids, its progress and its logger.

    `run` and `attempt` are counted from 1.
    """

    __slots__ = ("_name", "_report", "_stopped", "attempt", "run", "task")

    def __init__(
        self,
        task: ids.TaskId,
        *,
        run: int,
        attempt: int,
        name: str = "",
        report: Report | None = None,
    ) -> None:
        self.task = task
        self.run = run
        self.attempt = attempt
        self._name = name
        self._report = report
        self._stopped = False

    @property
    def task_id(self) -> str:
        """The id of the task, equal to `future.id` in the process that submitted it."""
        return ids.task_text(self.task)

    @property
    def name(self) -> str:
        """The `name=` of the call, or the id of the task if it has none."""
        return self._name or self.task_id

    @property
    def cancelled(self) -> bool:
        """Whether the task was asked to stop.

        `kiln.Cancelled` is then raised in the task; if the task does not end within `kill_grace`
        seconds, its process is killed (SIGKILL).
        """
        return self._stopped

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Report the progress of the task. A call is cheap, and only the last report counts.

        `fraction`: from 0 to 1, or None if it is unknown. `message`: a short text for people.
        Raises ValueError for a fraction outside of this range.
        """
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress({fraction!r}): the fraction must be from 0 to 1, or None")
        if self._report is not None:
            self._report(fraction, message)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records become part of the task's log (`kiln logs`).

        The records carry `task_id` and `attempt`. Unless the program has configured logging itself,
        the logger writes to standard error at level INFO and above.
        """
        return _Logger(_logger(), {"task_id": self.task_id, "attempt": self.attempt})

    def __repr__(self) -> str:
        return f"<Context {self.name} {self.task_id}/{self.run}/{self.attempt}>"

    # for the code that runs the task

    def stop(self) -> None:
        """Record that the task was asked to stop; may be called from any thread."""
        self._stopped = True


_running: list[Context] = []
"""Contexts of the tasks that run in this process, the innermost last: a task that another one waits
for may run on top of it."""


def context() -> Context:
    """Return the context of the running task; works in threads of the task too.

    Raises NotInTask outside of a task.
    """
    if not _running:
        raise errors.NotInTask(
            "kiln.context() is of a running task, and none is running here: call it in the "
            "function that you submit"
        )
    return _running[-1]


def begin(inner: Context) -> None:
    """Make `inner` the current context until `end` is called. Contexts nest."""
    _running.append(inner)


def end() -> None:
    """Remove the innermost context."""
    _running.pop()


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields of the task to the `extra` fields of a log record."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class _Here(logging.Handler):
    """A log handler that writes to the current `sys.stderr`.

    `sys.stderr` may be replaced while the output of a task is captured.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as logging's own handlers: a log line breaks no task
            self.handleError(record)


def _logger() -> logging.Logger:
    logger = logging.getLogger("kilnwork.task")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = _Here()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger
