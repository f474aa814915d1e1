"""Kind SyncSet: workers that start together, next to their data, and the flow that they run.

Used by the CRDs, by validation, by the controllers, by the command line and by the SDK. One
generation of a SyncSet is one run of its flow on one set of snapshots; its groups of workers are
TaskClusters. Not here: the steps of the flow (`api.flow`), and where data is stored
(`api.data_pond`).
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, data_pond, flow, flow_validation, meta, task

MAX_GENERATION = 9_999
"""Highest number of a generation: derived names leave room for four digits."""

MAX_GROUPS = 16
MAX_SNAPSHOTS = 32
MAX_OBJECTS = 64
MAX_OUTPUTS = 16

CONTROLLER = flow_validation.CONTROLLER
MAX_REPLICAS = 1_000

Wire = base_struct.Wire

Label = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
Variable = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")
]
"""A name that expressions can use as an identifier."""


class Phase(enum.StrEnum):
    """The phase of the newest generation of a SyncSet. The last four are final for the
    generation."""

    PENDING = "Pending"
    """The generation waits for admission: the spec is checked and snapshots are pinned."""
    FETCHING = "Fetching"
    """Snapshots are pinned; nodes fetch their data."""
    PLACING = "Placing"
    """Workers start: some of the required workers are not connected yet."""
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    KILLING = "Killing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"
    ADMISSION_ERROR = "AdmissionError"

    @property
    def final(self) -> bool:
        """Whether the generation has finished."""
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.KILLED, Phase.ADMISSION_ERROR})


class Backend(enum.StrEnum):
    """How the groups start together; see `SyncSetSpec.backend`."""

    AUTO = "auto"
    LOCAL = "local"
    PODS = "pods"


class NearMode(enum.StrEnum):
    """How strongly workers prefer nodes that hold their data; see `Group.near_mode`."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    NONE = "none"


class OnPodFailed(enum.StrEnum):
    """Reaction to a worker that ends unexpectedly; see `Group.on_pod_failed`."""

    REPLACE = "replace"
    FAIL = "fail"
    RESTART_GROUP = "restart-group"
    """Known from Volcano, and refused with a message that names the alternatives."""


class OnTimeout(enum.StrEnum):
    """Reaction when the workers do not start together in time; see `Gang.on_timeout`."""

    REQUEUE = "requeue"
    FAIL = "fail"


class StartOrder(enum.StrEnum):
    """Whether data or workers come first; see `PondUse.order`."""

    AUTO = "auto"
    LEAD = "lead"
    FOLLOW = "follow"


class Pin(enum.StrEnum):
    """When references are resolved to digests; see `Data.pin`."""

    AT_ADMISSION = "at-admission"


class Deliver(enum.StrEnum):
    """The part of a snapshot that a node gets; see `Snapshot.deliver`."""

    ALL = "all"
    SHARD = "shard"


class Access(enum.StrEnum):
    """The access of workers to a snapshot; see `Snapshot.access`."""

    READ = "read"
    COPY = "copy"


class Keep(Wire, frozen=True):
    """How long finished generations are kept."""

    generations: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """Number of finished generations that can be replayed: their digests, flow and results are
    kept."""
    ttl_seconds: Annotated[int, msgspec.Meta(ge=0, le=task.MAX_S)] | None = None
    """Number of seconds after which the finished SyncSet is deleted. Unset: it is never deleted."""


class ReplicasOf(Wire, frozen=True):
    """A number of workers that is derived from the data."""

    snapshot: Variable
    """Name of a snapshot. The group has one worker for each of its shards."""
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = MAX_REPLICAS
    """Maximum number of workers, whatever the number of shards."""


class Elastic(Wire, frozen=True):
    """Bounds within which the number of workers may be changed while they run."""

    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)]
    """Maximum number of workers. The minimum is `min` of the group."""


class Group(Wire, frozen=True):
    """Workers of one kind. They are a TaskCluster, `<set>-g<generation>-<group>`."""

    name: Label
    """Name of the group, by which steps of the flow refer to it."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] | None = None
    """Number of workers. Unset: 1, unless `replicasOf` is set."""
    replicas_of: ReplicasOf | None = None
    """Data from which the number of workers is derived. At most one of `replicas` and `replicasOf`
    may be set."""
    min: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] | None = None
    """Number of workers that are required before the flow starts. Unset: all of them."""
    elastic: Elastic | None = None
    """Allows `replicas` to be changed between `min` and this maximum while the flow runs."""
    slots_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of tasks that a worker runs at once."""
    service_account_name: task.Name | None = None
    """ServiceAccount whose rights the tasks have. Unset: they have none."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec of the workers, as for a TaskCluster. With backend `pods`, its containers
    must have requests for CPU and memory."""
    near: tuple[Variable, ...] = ()
    """Names of snapshots near which the workers should run."""
    near_mode: NearMode = NearMode.PREFERRED
    """How strongly workers prefer nodes that hold the data. `preferred`: such nodes are filled
    first. `required`: workers start only on such nodes, to which the data is fetched first (order
    `lead`). `none`: the data does not affect the choice of nodes."""
    on_pod_failed: OnPodFailed = OnPodFailed.REPLACE
    """Reaction to a worker that ends. `replace`: it is replaced as soon as a node with the data is
    available; `fail`: the generation fails. `restart-group` is refused: workers do not depend on
    each other, so that the others can continue."""

    @property
    def count(self) -> int:
        """Number of workers, unless it is derived from the data."""
        return 1 if self.replicas is None else self.replicas


class Gang(Wire, frozen=True):
    """How the groups start together."""

    wait_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 600
    """Number of seconds for which workers that have a node wait for the other workers."""
    on_timeout: OnTimeout = OnTimeout.REQUEUE
    """Reaction to workers that are still missing after `waitSeconds`. `requeue`: the present
    workers release their resources, and all workers start again when there is room for all of them;
    `fail`: the generation fails."""


class DriverWorker(Wire, frozen=True):
    """An additional worker for functions that spawn tasks. Its spawned tasks run on the first
    group."""

    service_account_name: task.Name | None = None
    """ServiceAccount whose rights the functions have. Unset: they have none."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec of the worker, as for a group."""

    @property
    def group(self) -> Group:
        """The worker in the form of a group."""
        return Group(
            name=CONTROLLER,
            service_account_name=self.service_account_name,
            template=self.template,
        )


class Resources(Wire, frozen=True):
    """The workers of a SyncSet and the other objects that belong to it."""

    groups: Annotated[tuple[Group, ...], msgspec.Meta(min_length=1, max_length=MAX_GROUPS)]
    """Groups of workers. They start together or not at all."""
    controller: DriverWorker | None = None
    """An additional worker for steps with `group: controller`, whose functions spawn tasks. It
    starts together with the groups. The flow itself is driven by the manager, which needs no
    Pod."""
    objects: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_OBJECTS)] = ()
    """Manifests of further objects that the SyncSet owns. They are created before its workers and
    deleted with it. Only ConfigMaps and the kinds that the manager allows (`--allow-kind`) are
    accepted."""
    gang: Gang = Gang()
    """How the groups start together."""

    @property
    def every_group(self) -> tuple[Group, ...]:
        """The groups, followed by the controller if there is one."""
        return self.groups if self.controller is None else (*self.groups, self.controller.group)


class Shard(data_pond.ShardScheme, frozen=True):
    """How a snapshot is divided. The same digest, scheme and count always give the same shards."""

    group: Label | None = None
    """Name of a group, instead of `count`: there are as many shards as the group has workers. If
    the number of workers changes while the flow runs, the number of shards follows, until a step
    starts that uses the snapshot."""


class Snapshot(Wire, frozen=True):
    """Data that does not change during a generation."""

    name: Variable
    """Name of the snapshot: `data.<name>` in expressions, and the name of its directory in
    `$KILN_DATA`."""
    source: data_pond.SnapshotSource = msgspec.field(name="from")
    """Source of the files."""
    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")] | None = None
    """Expected digest of the snapshot; the data of `from` is verified against it. Unset: the
    digest is computed from the source once and written to the status."""
    deliver: Deliver = Deliver.ALL
    """Part of the snapshot that a node gets. `all`: the whole snapshot. `shard`: the shards of its
    workers. The task of a shard then runs where the shard is, and other steps see only the shards
    on their node. `shard` requires a step with `of: data.NAME`, and with backend `pods` no `access:
    copy`."""
    shard: Shard | None = None
    """How the snapshot is divided, for steps with `each`. Unset: it is one piece."""
    access: Access = Access.READ
    """Access of the workers. `read`: files are read-only and shared between runs. `copy`: each
    node has a copy that the workers of this generation may change."""


class PondUse(Wire, frozen=True):
    """The DataPond of a SyncSet, and how it is used."""

    name: task.Name = "default"
    """Name of a DataPond in this namespace."""
    order: StartOrder = StartOrder.AUTO
    """Whether data or workers come first. `lead`: data is fetched to nodes on which the workers
    fit; the workers start when it is complete. `follow`: workers start, data is fetched to their
    nodes, then the flow starts. `auto`: `lead` for more than 256 MiB or a group with `nearMode:
    required`, otherwise `follow`."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 900
    """Maximum number of seconds for pinning, and for fetching. When it is exceeded, the generation
    fails with `DataTimedOut`."""


class Output(Wire, frozen=True):
    """Files that tasks of the flow write, and that are kept as a snapshot in the pond."""

    name: Variable
    """Name of the output in the status, and in `from.output` of other SyncSets."""
    step: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    """Path of a step of `flow.do`, such as `price` or `checks.var`: a call or a command on workers
    of the set. The output consists of the files that its successful tasks have written to
    `$KILN_OUTPUTS` (`kiln.outputs()`)."""
    glob: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Pattern that selects files, with `*`, `?`, `[…]` and `**`. Empty: all files."""


class Data(Wire, frozen=True):
    """The data that the flow reads and the outputs that it writes."""

    pin: Pin = Pin.AT_ADMISSION
    """When the digests of the sources are computed: once, when a generation is admitted."""
    snapshots: Annotated[tuple[Snapshot, ...], msgspec.Meta(max_length=MAX_SNAPSHOTS)] = ()
    """Snapshots that the flow reads."""
    pond: PondUse = PondUse()
    """The DataPond that stores the snapshots."""
    outputs: Annotated[tuple[Output, ...], msgspec.Meta(max_length=MAX_OUTPUTS)] = ()
    """Outputs: files written by steps that are kept after the flow has succeeded. They are
    snapshots in the pond, on the nodes where they were written, and are kept as long as the
    generation."""


class Replay(Wire, frozen=True):
    """A generation that repeats an earlier one."""

    generation: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)]
    """Number of the generation that is a replay. For other generations the field has no effect."""
    of: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)]
    """Number of the earlier generation whose data and flow are repeated, whatever else the spec
    says about them."""


class SyncSetSpec(Wire, frozen=True):
    """The workers, the flow and the data of a SyncSet.

    Within a generation only `run`, `suspend`, `deadlineSeconds`, `keep`, `killTimestamp`, the
    replicas of elastic groups, and until the flow starts `priority` can be changed. When
    `generation` is raised, all fields can be.
    """

    resources: Resources
    """The workers and the other objects that belong to the set."""
    flow: flow.Flow
    """Steps that the workers run."""
    data: Data = Data()
    """Data that the flow reads, and outputs that it writes."""
    generation: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)] = 1
    """Number of the wanted generation. It may only be increased: a higher number ends the current
    generation and starts a new one, on the data as it is then."""
    run: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Number of the run within the generation. It may only be increased: if it is higher than
    `status.run`, the failed parts of the finished generation and the steps after them run again on
    the same data. `kiln retry --failed` sets it."""
    replay: Replay | None = None
    """Earlier generation that is repeated. `kiln replay` sets it."""
    backend: Backend = Backend.AUTO
    """How the groups start together. `local`: workers are processes of one machine, and the flow
    starts when all are connected. `pods`: Pods wait at a scheduling gate until there is room for
    all of them, and their data is complete. `auto`: `local` if all nodes are kilnwork nodes on
    this machine, otherwise `pods`."""
    suspend: bool = False
    """Whether the flow is suspended: no tasks start, and no workers before the flow has started.
    Running tasks continue."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000_000, le=1_000_000_000)] = 0
    """Priority of the SyncSet. With backend `pods`, a SyncSet that waits for room holds back those
    of lower priority if it would fit on empty nodes; running tasks are not interrupted. On shared
    slots, tasks of higher priority start first. It may be changed until the flow starts."""
    deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=task.MAX_S)] | None = None
    """Maximum number of seconds for the whole generation since its admission. When it is exceeded,
    the generation fails with `DeadlineExceeded`. The time starts again when failed parts run
    again."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) at which the generation is killed. `kiln cancel` sets it."""
    keep: Keep = Keep()
    """How long finished generations and the SyncSet are kept."""

    @property
    def replay_of(self) -> int | None:
        """Number of the earlier generation that `generation` repeats; None if it is no replay."""
        if self.replay is None or self.replay.generation != self.generation:
            return None
        return self.replay.of


class Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all structs of a SyncSet's status."""


class SnapshotStatus(Status, frozen=True):
    """The state of one snapshot of the SyncSet's newest generation."""

    digest: str = ""
    """Digest of the snapshot, `sha256:…`, set when it is pinned. It does not change afterwards."""
    bytes: int = 0
    """Total size of all files, in bytes."""
    shards: int = 0
    """Number of shards; 0 if the snapshot is one piece."""
    nodes_ready: int = 0
    """Number of nodes that hold the data that they need."""
    nodes_wanted: int = 0
    """Number of nodes that need data of the snapshot."""


class OutputStatus(Status, frozen=True):
    """An output of the newest generation."""

    digest: str = ""
    """Digest of the snapshot, `sha256:…`."""
    bytes: int = 0
    """Total size of all files, in bytes."""
    files: int = 0
    """Number of files."""
    nodes: int = 0
    """Number of nodes that hold files of the output."""


class GroupStatus(Status, frozen=True):
    """A group of the newest generation."""

    cluster: str = ""
    """Name of the TaskCluster of the group."""
    desired: int = 0
    """Number of workers that the spec requests."""
    min: int = 0
    """Number of workers that are required before the flow starts."""
    gated: int = 0
    """Number of Pods that wait at their scheduling gate, for other workers or for data."""
    ready: int = 0
    """Number of workers that are connected."""


class StepStatus(Status, frozen=True):
    """A step of the flow, summed over all of its instances."""

    state: str = ""
    """State of the step."""
    total: int = 0
    """Number of known tasks of the step."""
    succeeded: int = 0
    """Number of tasks that succeeded."""
    failed: int = 0
    """Number of tasks that failed for good."""
    running: int = 0
    """Number of tasks that are running."""
    reused: int = 0
    """Number of tasks whose result was reused from an earlier generation."""


class FlowStatus(Status, frozen=True):
    """The flow of the newest generation."""

    steps: dict[str, StepStatus] = {}
    """Steps by name."""


class BackendRef(Status, frozen=True):
    """The backend that starts the groups together."""

    backend: str = ""
    """Name of the backend: `local` or `pods`."""
    kind: str = ""
    """Kind of the objects that represent the groups."""
    names: tuple[str, ...] = ()
    """Names of the objects that represent the groups."""


class GenerationStatus(Status, frozen=True):
    """A finished generation that can be replayed."""

    generation: int
    """Number of the generation."""
    phase: str = ""
    """Phase in which the generation finished."""
    replay_of: int | None = None
    """Number of the earlier generation that this one repeated, if it was a replay."""
    finish_time: str | None = None
    """Time at which the generation finished."""
    digests: dict[str, str] = {}
    """Digests of the snapshots by name."""
    outputs: dict[str, str] = {}
    """Digests of the outputs by name."""


class SyncSetStatus(Status, frozen=True):
    """The state of the newest generation."""

    phase: str = ""
    """Phase of the newest generation."""
    reason: str = ""
    """Reason for the phase, as one stable CamelCase word."""
    message: str = ""
    """Details about the phase, for people: what the generation waits for, and where."""
    generation: int = 0
    """Number of the newest generation that was admitted."""
    run: int = 1
    """The `spec.run` that is carried out."""
    replay_of: int | None = None
    """Number of the earlier generation that the newest one repeats, if it is a replay."""
    admission_time: str | None = None
    """Time at which the newest generation was admitted, or at which a later run of it started."""
    start_time: str | None = None
    """Time at which the flow started."""
    finish_time: str | None = None
    """Time at which the generation finished."""
    snapshots: dict[str, SnapshotStatus] = {}
    """Snapshots by name."""
    groups: dict[str, GroupStatus] = {}
    """Groups of workers by name."""
    flow: FlowStatus = FlowStatus()
    """State of the flow."""
    result: task.Result | None = None
    """Result of the flow. Only set when the generation succeeded."""
    outputs: dict[str, OutputStatus] = {}
    """Outputs by name, without those of skipped steps. Only set when the generation succeeded."""
    backend_ref: BackendRef | None = None
    """The backend that starts the groups together."""
    data_ready: str = ""
    """Number of nodes that hold their data, out of all nodes that need data, such as `2/3`."""
    gang: str = ""
    """Number of connected workers, out of all wanted workers, such as `4/4`."""
    progress: str = ""
    """Number of successful tasks of the flow, out of all known tasks, such as `17/64`."""
    generations: tuple[GenerationStatus, ...] = ()
    """Finished generations, newest first, at most `keep.generations`."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
    conditions: tuple[meta.Condition, ...] = ()
    """Milestones: `SnapshotPinned`, `DataReady`, `GangReady`, `FlowRunning`, `Succeeded`."""


class SyncSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Workers that start together next to their data, and the flow that they run on it."""

    metadata: meta.ObjectMeta
    spec: SyncSetSpec
    status: SyncSetStatus = SyncSetStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "SyncSet"
