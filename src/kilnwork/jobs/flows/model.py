"""The values that enter and leave `flows.runs`: new runs, and views of what is known.

Used by the SyncSet controller, server and CLI. All frozen; a view shows what is on disk, apart from
which tasks run at this moment.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import flow, sync_set


class FlowKey(NamedTuple):
    """Names a run of a SyncSet's generation."""

    uid: str
    """`metadata.uid` of the SyncSet, a UUID."""
    generation: int


class Phase(StrEnum):
    """Where a run is. The last three do not change."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"

    @property
    def final(self) -> bool:
        """Whether nothing of it runs any more."""
        return self is not Phase.RUNNING


class InstanceState(StrEnum):
    """Where a step instance is. All but the first two are final."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    KILLED = "Killed"
    """It was stopped, since nothing needed it any more."""


class SnapshotRef(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A pinned snapshot."""

    name: str
    digest: str
    bytes: int = 0
    shards: list[Any] | None = None
    """Documents of its shards, in order; None: it has none."""


class NewFlowRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A generation of a SyncSet that is to run: gang and data are ready. What the journal keeps."""

    uid: str
    namespace: str
    set_name: str
    generation: int
    flow: flow.Flow
    """Without problems (`api.flow_validation`)."""
    params: dict[str, Any] = {}
    """Values that go before those of the same names in `flow.params`."""
    snapshots: dict[str, SnapshotRef] = {}
    clusters: dict[str, str] = {}
    """Names of TaskClusters by group."""
    by_shard: tuple[str, ...] = ()
    """Snapshots of which a node holds the shards of its portions, no others."""
    run: int = 1
    """Of the generation, which may have had others before its flow began."""
    portions: dict[str, int] = {}
    """By group whose steps read those: how many portions their shards are in. The task of a shard
    goes to a worker whose node holds its portion (`data.pond.shards.portion`)."""
    memo: bool = True
    """Steps that are deterministic use results of earlier generations."""
    priority: int = 0
    """Of all tasks."""
    outputs: tuple[sync_set.Output, ...] = ()
    """What is kept of the files that its steps write; the controller sees to it."""

    @property
    def key(self) -> FlowKey:
        """Names a run of a SyncSet's generation."""
        return FlowKey(self.uid, self.generation)


class Counts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How many tasks of a step are where: shards, or one."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    reused: int = 0
    """Those that have succeeded by a result of an earlier generation."""


class StepView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step by its path in the flow, such as `solve.iterate`: counts of all its instances, the
    rest of the newest."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    running: int = 0
    reused: int = 0
    state: InstanceState = InstanceState.WAITING
    reason: str = ""
    message: str = ""


class FlowRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run. Times are wall clock, seconds."""

    uid: str
    namespace: str
    set_name: str
    generation: int
    version: int
    """Rises with each change, also over restarts."""
    phase: Phase
    reason: str
    message: str
    suspended: bool
    started: float
    finished: float | None
    run: int = 1
    """Rises each time that what failed runs again."""
    steps: dict[str, StepView]
    """In the order of the flow."""
    value: Any = None
    """The flow's result, once it has succeeded."""

    @property
    def key(self) -> FlowKey:
        """Names a run of a SyncSet's generation."""
        return FlowKey(self.uid, self.generation)


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a step, or one of its shards: `price[17]`, `solve[3].iterate`."""

    key: str
    step: str
    """Path of the step, without numbers."""
    state: InstanceState
    reason: str = ""
    message: str = ""
    started: float | None = None
    finished: float | None = None
    task: str = ""
    """Id of its task, "" for steps made of others, and for results that are used again."""
    task_name: str = ""
    run: int = 1
    attempt: int = 0
    worker: str = ""
    node: str = ""
    reused: bool = False
