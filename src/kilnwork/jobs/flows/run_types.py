"""Values of the API of `flows.flow_service`: new runs, and views of runs and steps.

Used by the SyncSet controller, server and CLI. All are frozen. A view shows what is on disk, except
for the number of running tasks, which is current.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import flow, sync_set


class FlowKey(NamedTuple):
    """Key of a run of a flow: the SyncSet and the number of the generation."""

    uid: str
    """`metadata.uid` of the SyncSet, a UUID."""
    generation: int


class FlowPhase(StrEnum):
    """Phase of a run of a flow. The last three phases are final."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"

    @property
    def final(self) -> bool:
        """Whether the phase is final, so that no part of the run is running any more."""
        return self is not FlowPhase.RUNNING


class InstanceState(StrEnum):
    """State of a step instance. All states but the first two are final, unless the run is
    retried."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    KILLED = "Killed"
    """The step was stopped: its result was not needed any more, or a step around it or the run was
    to end."""


class SnapshotRef(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Reference to a pinned snapshot."""

    name: str
    digest: str
    bytes: int = 0
    shards: list[Any] | None = None
    """Documents of its shards, in order; None if it has no shards."""


class NewFlowRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Definition of a run of a flow: a generation of a SyncSet whose gang and data are ready.
    Stored in the journal.
    """

    uid: str
    namespace: str
    set_name: str
    generation: int
    flow: flow.Flow
    """Flow of the SyncSet, which must be valid (`api.flow_validation`)."""
    params: dict[str, Any] = {}
    """Values that override those of the same names in `flow.params`."""
    snapshots: dict[str, SnapshotRef] = {}
    clusters: dict[str, str] = {}
    """Names of TaskClusters by group."""
    by_shard: tuple[str, ...] = ()
    """Snapshots that are delivered by portion: a node has only the shards of its portions."""
    run: int = 1
    """Number of the run within the generation, which may have had runs that ended before its flow
    began."""
    portions: dict[str, int] = {}
    """Number of portions into which the shards of the snapshots in `by_shard` are divided, by
    group. The task of a shard goes to a worker whose node has the shard's portion
    (`data.pond.shards.portion`)."""
    memo: bool = True
    """Whether deterministic steps use results of earlier generations."""
    priority: int = 0
    """Priority of all tasks of the run."""
    outputs: tuple[sync_set.Output, ...] = ()
    """Outputs: which files written by the steps are kept. Applied by the controller."""

    @property
    def key(self) -> FlowKey:
        """Key of the run."""
        return FlowKey(self.uid, self.generation)


class TaskCounts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Number of tasks of a step by outcome. A step has one task per shard, or a single task."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    reused: int = 0
    """Number of tasks that succeeded with a result of an earlier generation."""


class StepView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """View of a step, identified by its path in the flow, such as `solve.iterate`.

    The counts are those of all instances of the step; the other fields describe its newest
    instance.
    """

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    running: int = 0
    reused: int = 0
    state: InstanceState = InstanceState.WAITING
    reason: str = ""
    message: str = ""


class FlowRunView(msgspec.Struct, frozen=True, kw_only=True):
    """View of a run of a flow. Times are wall clock seconds."""

    uid: str
    namespace: str
    set_name: str
    generation: int
    version: int
    """Version of the view, which increases with each change, also across restarts."""
    phase: FlowPhase
    reason: str
    message: str
    suspended: bool
    started: float
    finished: float | None
    run: int = 1
    """Number of the run within the generation, which increases each time that failed steps are run
    again."""
    steps: dict[str, StepView]
    """Steps by path, in the order of the flow."""
    value: Any = None
    """Result of the flow, once it has succeeded."""

    @property
    def key(self) -> FlowKey:
        """Key of the run."""
        return FlowKey(self.uid, self.generation)


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """View of a step instance or of one shard of an instance: `price[17]`, `solve[3].iterate`."""

    key: str
    step: str
    """Path of the step, without numbers."""
    state: InstanceState
    reason: str = ""
    message: str = ""
    started: float | None = None
    finished: float | None = None
    task: str = ""
    """Id of the task; "" for steps that consist of other steps, and for reused results."""
    task_name: str = ""
    run: int = 1
    attempt: int = 0
    worker: str = ""
    node: str = ""
    reused: bool = False
