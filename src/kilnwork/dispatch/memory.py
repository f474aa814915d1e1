"""Everything the machine knows and has not handed out yet: one object that its parts share.

Used by `machine`, `lifecycle`, `fleet` and `spawning`. Holds no rules of its own beyond keeping its
indexes together. Pure.
"""

import heapq
from collections import deque
from enum import IntEnum
from itertools import count

from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, inputs, instructions, records, transitions
from kilnwork.kit import ids

STORY_LENGTH = 100
"""Inputs that an `IllegalTransition` can tell about."""


class Alarm(IntEnum):
    """What a deadline is for."""

    RETRY = 1
    PENDING = 2
    TOTAL = 3
    RUNNING = 4
    CONFIRM = 5
    LEASE = 6


Target = records.Task | records.Worker


class Memory:
    """Tasks, workers and clusters by key, deadlines, and the batch being gathered."""

    def __init__(
        self, *, lease_s: float, entropy: ids.Entropy, task_row: int = 1, worker_row: int = 1
    ) -> None:
        self.lease_s = lease_s
        self.entropy = entropy
        self.tasks: dict[ids.TaskId, records.Task] = {}
        self.workers: dict[bytes, records.Worker] = {}
        self.links: dict[int, records.Worker] = {}
        self.clusters: dict[records.ClusterKey, records.Cluster] = {}
        self.hungry: set[records.Cluster] = set()
        self.closing = False
        self.batch = instructions.Batch()
        self.task_rows = count(task_row)
        self.worker_rows = count(worker_row)
        self.story: deque[tuple[float, inputs.Input]] = deque(maxlen=STORY_LENGTH)
        self._alarms: list[tuple[float, int, Alarm, Target, int]] = []
        self._alarm_numbers = count()

    def close(self) -> None:
        """The server stops: no more seats are given, and losses are our doing."""
        self.closing = True

    def cluster(self, namespace: str, name: str) -> records.Cluster:
        """The cluster of that name, made when it is new."""
        key = (namespace, name)
        cluster = self.clusters.get(key)
        if cluster is None:
            cluster = self.clusters[key] = records.Cluster(key)
        return cluster

    def mark(self, task: records.Task) -> None:
        """Its row is to be written."""
        self.batch.dirty[task] = None

    def send(self, instruction: instructions.Send) -> None:
        """To be carried out after the commit."""
        self.batch.sends.append(instruction)

    def touch(self, cluster: records.Cluster) -> None:
        """Its view changed, and tasks may fit now."""
        self.batch.clusters.add(cluster)
        self.hungry.add(cluster)

    def move(self, task: records.Task, state: api_task.State) -> None:
        """The only way in which a task changes its state."""
        if (task.state, state) not in transitions.TASK_MOVES:
            raise errors.IllegalTransition(
                f"task {ids.task_text(task.id)}/{task.run}: {task.state} → {state}\n{self.tell()}"
            )
        task.state = state
        self.batch.dirty[task] = None

    def move_attempt(self, task: records.Task, state: transitions.AttemptState) -> None:
        """The only way in which an attempt changes its state, apart from its reservation."""
        before = task.attempt_state
        if before is None or (before, state) not in transitions.ATTEMPT_MOVES:
            raise errors.IllegalTransition(f"attempt {task.ref}: {before} → {state}\n{self.tell()}")
        task.attempt_state = state
        self.batch.dirty[task] = None

    def tell(self) -> str:
        """The recent story, oldest first, without payloads."""
        return "\n".join(f"{at:.3f} {_summary(item)}" for at, item in self.story)

    def alarm(self, due: float, kind: Alarm, target: Target, *, attempt: int = 0) -> None:
        """Look at `target` again at `due` (monotonic seconds)."""
        heapq.heappush(self._alarms, (due, next(self._alarm_numbers), kind, target, attempt))

    def next_alarm(self) -> float | None:
        """When the next deadline is, monotonic seconds."""
        return self._alarms[0][0] if self._alarms else None

    def due_alarm(self, mono: float) -> tuple[Alarm, Target, int] | None:
        """The next deadline that has passed; it is handed out once."""
        if not self._alarms or self._alarms[0][0] > mono:
            return None
        _, _, kind, target, attempt = heapq.heappop(self._alarms)
        return kind, target, attempt


def _summary(item: inputs.Input) -> str:
    """One line that names what an input is about, and nothing that a user may want kept secret."""
    facts = []
    for name in ("link", "serial", "ref", "parent", "session", "pod_uid", "reason", "child_key"):
        value = getattr(item, name, None)
        if value is not None:
            facts.append(f"{name}={value.hex() if isinstance(value, bytes) else value}")
    task = getattr(item, "task", None)
    if isinstance(task, bytes):
        facts.append(f"task={task.hex()}")
    if isinstance(item, inputs.Submit):
        facts.append(f"task={item.submission.task.hex()} run={item.submission.spec.run}")
    if isinstance(item, inputs.Finished):
        facts.append(f"ending={item.outcome.ending} proof={item.outcome.proof}")
    return " ".join([type(item).__name__, *facts])
