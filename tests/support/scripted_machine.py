"""The dispatcher's machine with two clocks that a test sets, and one worker with one slot.

For unit tests that follow one task. No I/O.
"""

import random
from typing import Any

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, instructions, machine, memory, records
from kilnwork.kit import ids

TASK = ids.TaskId(bytes(15) + b"\1")


class World:
    """A machine, two clocks, and one worker with one slot after `join`."""

    def __init__(self) -> None:
        self.memory = memory.Memory(lease_s=1000.0, entropy=random.Random(0))
        self.machine = machine.Machine(self.memory)
        self.now = inputs.Moment(1_000_000.0, 0.0)
        self.sent: list[instructions.Send] = []
        self.serial = 0

    def apply(self, item: inputs.Input) -> None:
        self.machine.handle(item, self.now)
        batch = self.machine.take(self.now)
        self.sent += batch.sends

    def after(self, seconds: float) -> None:
        self.now = inputs.Moment(self.now.wall + seconds, self.now.mono + seconds)
        self.apply(inputs.Tick())

    def submit(self, *, since: float | None = None, **spec: Any) -> records.Task:
        filled = api_task.TaskSpec(command=("true",), **spec)
        submission = model.Submission(
            task=TASK, namespace="ns", name="t", spec=filled, pending_since=since
        )
        self.apply(inputs.Submit(submission))
        return self.memory.tasks[TASK]

    def join(self, pod_uid: str = "uid", *, link: int = 1) -> None:
        self.apply(
            inputs.Join(
                link=link, session=bytes([link] * 16), namespace="ns", cluster="default", name="w",
                pod_uid=pod_uid, node="n", slots=1,
            )
        )  # fmt: skip

    def report(self, task: records.Task, outcome: attempts.Outcome | None = None) -> None:
        self.serial += 1
        if outcome is None:
            self.apply(inputs.Started(1, self.serial, task.ref, self.now.wall))
        else:
            self.apply(inputs.Finished(1, self.serial, task.ref, outcome))

    @property
    def runs(self) -> int:
        return sum(isinstance(send, instructions.RunAttempt) for send in self.sent)
