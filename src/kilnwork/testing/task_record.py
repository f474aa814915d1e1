"""The record of one task of an inline session, with its state and result.

Used by the modules of inline sessions; tests may read the fields to see what their program has
submitted.
"""

from collections.abc import Iterator
from typing import Any

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.kit import ids
from kilnwork.sdk import context, futures


class Record:
    """The record of one task.

    `function`: `module:name`; `attempts`: number of started attempts; `reason`: the reason of its
    `state`.
    """

    def __init__(  # noqa: PLR0913 - what a call is
        self,
        *,
        task: ids.TaskId,
        spec: api_task.TaskSpec,
        held: Any,
        arguments: attempts.Payload,
        name: str | None,
        key: str | None,
        parent: "Record | None",
    ) -> None:
        self.task = task
        self.spec = spec
        self.held = held
        self.arguments = arguments
        self.name = name
        self.key = key
        self.parent = parent
        self.state = api_task.State.PENDING
        self.reason = ""
        self.message = ""
        self.payload: attempts.Payload | None = None
        self.attempts = 0
        self.children: dict[str, Record] = {}
        self.progress: tuple[float | None, str] = (None, "")
        # the running attempt
        self.context: context.Context | None = None
        self.deadline: float | None = None
        self.ordinals: dict[str, int] = {}
        self.asked: set[str] = set()
        self.timed_out = False
        self.expired = ""
        self.killing = ""
        self.steps: Iterator[Any] | None = None
        self.yielded: list[attempts.Payload] = []
        # futures and tasks that wait for this task, and tasks that it needs
        self.futures: dict[int, futures.CallFuture[Any]] = {}
        self.needs: tuple[Record, ...] = ()
        self.missing = 0
        self.dependents: list[Record] = []
        self.delegators: list[Record] = []
        self.target: Record | None = None

    @property
    def id(self) -> str:
        return ids.task_text(self.task)

    @property
    def function(self) -> str:
        """The task function, as `module:name`."""
        return self.spec.call.function if self.spec.call is not None else ""

    @property
    def final(self) -> bool:
        return self.state.final

    def result(self, number: int) -> calls.CallResult:
        """Return the outcome of the task in the form for the future with that number."""
        return calls.CallResult(number, self.state, self.reason, self.message, self.payload)

    def error_info(self) -> attempts.ErrorInfo:
        kinds = {api_task.State.KILLED: "kilnwork.Cancelled"}
        return attempts.ErrorInfo(kinds.get(self.state, "kilnwork.TaskFailed"), self.message, "")

    def __repr__(self) -> str:
        return f"<Record {self.name or self.function} {self.state} {self.reason}>"
