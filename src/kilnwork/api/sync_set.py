"""Kind SyncSet: workers that start together, next to their data, and the flow that they run.

Used by the CRDs, by validation, by the controllers and by the command line. One generation of a
SyncSet is one run of its flow on one set of snapshots; its groups of workers are TaskClusters. Not
here: the flow's steps (`api.flow`), and where data is kept (`api.data_pond`).
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import data_pond, flow, flow_validation, meta, task, wire

MAX_GENERATION = 9_999
"""Highest number of a generation: four digits, for which names leave room."""

MAX_GROUPS = 16
MAX_SNAPSHOTS = 32
MAX_OBJECTS = 64
MAX_OUTPUTS = 16

CONTROLLER = flow_validation.CONTROLLER
MAX_REPLICAS = 1_000

Wire = wire.Wire

Label = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
Variable = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")
]
"""A name that expressions use as it is."""


class Phase(enum.StrEnum):
    """The phase of the newest generation of a SyncSet. The last four do not change by
    themselves."""

    PENDING = "Pending"
    """It waits for admission: the spec is read, snapshots are to be pinned."""
    FETCHING = "Fetching"
    """Snapshots are pinned; nodes fetch their data."""
    PLACING = "Placing"
    """Workers start: not all required workers of every group are connected yet."""
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    KILLING = "Killing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"
    ADMISSION_ERROR = "AdmissionError"

    @property
    def final(self) -> bool:
        """Whether nothing of this generation runs, or will."""
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.KILLED, Phase.ADMISSION_ERROR})


class Backend(enum.StrEnum):
    """How groups start together; see `SyncSetSpec.backend`."""

    AUTO = "auto"
    LOCAL = "local"
    PODS = "pods"


class NearMode(enum.StrEnum):
    """How much it matters that a worker is next to its data; see `Group.near_mode`."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    NONE = "none"


class OnPodFailed(enum.StrEnum):
    """What follows when a worker ends by itself; see `Group.on_pod_failed`."""

    REPLACE = "replace"
    FAIL = "fail"
    RESTART_GROUP = "restart-group"
    """Known from Volcano, and refused: the message says what to write."""


class OnTimeout(enum.StrEnum):
    """What follows when workers do not start together in time; see `Gang.on_timeout`."""

    REQUEUE = "requeue"
    FAIL = "fail"


class StartOrder(enum.StrEnum):
    """What comes first, data or workers; see `PondUse.order`."""

    AUTO = "auto"
    LEAD = "lead"
    FOLLOW = "follow"


class Pin(enum.StrEnum):
    """When references become digests; see `Data.pin`."""

    AT_ADMISSION = "at-admission"


class Deliver(enum.StrEnum):
    """What of a snapshot a node gets; see `Snapshot.deliver`."""

    ALL = "all"
    SHARD = "shard"


class Access(enum.StrEnum):
    """What a worker may do to its snapshot; see `Snapshot.access`."""

    READ = "read"
    COPY = "copy"


class Keep(Wire, frozen=True):
    """How long finished generations are kept."""

    generations: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """How many finished generations can be replayed: their digests, flow and results stay."""
    ttl_seconds: Annotated[int, msgspec.Meta(ge=0, le=task.MAX_S)] | None = None
    """Seconds after its end when the SyncSet itself is deleted. Without it, it stays."""


class ReplicasOf(Wire, frozen=True):
    """A number of workers that follows from the data."""

    snapshot: Variable
    """Name of a snapshot: one worker for each of its shards."""
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = MAX_REPLICAS
    """The most workers, however many shards there are."""


class Elastic(Wire, frozen=True):
    """How far the number of workers may be changed while they run."""

    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)]
    """The most workers; the least is `min` of the group."""


class Group(Wire, frozen=True):
    """Workers of one sort. They are a TaskCluster, `<set>-g<generation>-<group>`."""

    name: Label
    """Name of the group, by which steps of the flow choose it."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] | None = None
    """Number of workers. Without it and without `replicasOf`, 1."""
    replicas_of: ReplicasOf | None = None
    """The number of workers follows from the data. Give this or `replicas`."""
    min: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] | None = None
    """How many workers are required before anything of the set starts. Without it, all of them."""
    elastic: Elastic | None = None
    """`replicas` may be changed while the flow runs, between `min` and this."""
    slots_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of tasks that a worker runs at once."""
    service_account_name: task.Name | None = None
    """ServiceAccount whose rights the tasks get; without it they have none."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec of the workers, as that of a TaskCluster. With backend `pods` its containers
    need requests of CPU and memory."""
    near: tuple[Variable, ...] = ()
    """Snapshots next to which the workers should be."""
    near_mode: NearMode = NearMode.PREFERRED
    """`preferred`: nodes that hold the data are filled first. `required`: workers start only where
    the data is, which is fetched first (order `lead`). `none`: data does not matter."""
    on_pod_failed: OnPodFailed = OnPodFailed.REPLACE
    """What follows when a worker ends: `replace`, another takes its place as soon as its node holds
    the data; `fail`, the generation fails. `restart-group` is refused: workers know nothing of each
    other, so that the others can go on."""

    @property
    def count(self) -> int:
        """Number of workers, unless it follows from the data."""
        return 1 if self.replicas is None else self.replicas


class Gang(Wire, frozen=True):
    """How the groups start together."""

    wait_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 600
    """How long workers that have a node wait for the others."""
    on_timeout: OnTimeout = OnTimeout.REQUEUE
    """What follows when others are missing for so long: `requeue`, the present ones release their
    room and all start again when there is room for all; `fail`, the generation fails."""


class DriverWorker(Wire, frozen=True):
    """One more worker, for functions that drive: what they spawn runs on the first group."""

    service_account_name: task.Name | None = None
    """ServiceAccount whose rights such a function gets; without it, it has none."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec of the worker, as that of a group."""

    @property
    def group(self) -> Group:
        """The same as a group of workers."""
        return Group(
            name=CONTROLLER,
            service_account_name=self.service_account_name,
            template=self.template,
        )


class Resources(Wire, frozen=True):
    """The workers of a set, and what else belongs to it."""

    groups: Annotated[tuple[Group, ...], msgspec.Meta(min_length=1, max_length=MAX_GROUPS)]
    """Groups of workers. They start together or not at all."""
    controller: DriverWorker | None = None
    """A worker of its own for steps that say `group: controller`: functions that spawn tasks. It
    starts with the groups. The flow itself is driven by the manager, which needs no Pod."""
    objects: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_OBJECTS)] = ()
    """Manifests of more objects, which the SyncSet owns: made before its workers, removed with it.
    The manager makes only kinds that it was allowed (`--allow-kind`), and ConfigMaps."""
    gang: Gang = Gang()
    """How the groups start together."""

    @property
    def every_group(self) -> tuple[Group, ...]:
        """The groups, and the controller behind them if there is one."""
        return self.groups if self.controller is None else (*self.groups, self.controller.group)


class Shard(data_pond.ShardScheme, frozen=True):
    """How a snapshot is divided. The same digest, scheme and count always give the same shards."""

    group: Label | None = None
    """Instead of `count`: as many shards as this group has workers."""


class Snapshot(Wire, frozen=True):
    """Data that all steps of a generation see unchanged."""

    name: Variable
    """Name of the snapshot: `data.<name>` in expressions, its directory below `$KILN_DATA`."""
    source: data_pond.SnapshotSource = msgspec.field(name="from")
    """Where it comes from."""
    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")] | None = None
    """Digest of the snapshot, if it must be this one; what `from` gives is checked against it.
    Without it the digest is taken from the source once, and written to the status."""
    deliver: Deliver = Deliver.ALL
    """What a node gets: `all` of it, or `shard`: the shards that its workers are for. Then the task
    of a shard runs where that is, and other steps see on each node what is there."""
    shard: Shard | None = None
    """How it is divided, for steps with `each`. Without it, it is one piece."""
    access: Access = Access.READ
    """`read`: files are read-only and shared between runs. `copy`: each node has a copy that the
    workers of this generation may write to."""


class PondUse(Wire, frozen=True):
    """The DataPond, and how it is used."""

    name: task.Name = "default"
    """Name of a DataPond of this namespace."""
    order: StartOrder = StartOrder.AUTO
    """`lead`: data is fetched to nodes where the workers fit, which start when it is there.
    `follow`: workers start, data is fetched to their nodes, then the flow begins. `auto`: `lead`
    for more than 256 MiB, or where a group must be near."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 900
    """Seconds for pinning, and for fetching. Then the generation fails with `DataTimedOut`."""


class Output(Wire, frozen=True):
    """Files that tasks of the flow write, and that are kept as a snapshot of the pond."""

    name: Variable
    """Name of the output; in the status, and where another set takes it `from`."""
    step: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    """Path of a step of `flow.do`, such as `price` or `checks.var`: a call or a command on workers
    of the set. What its tasks that succeed have written to `$KILN_OUTPUTS` (`kiln.outputs()`) is
    the output."""
    glob: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Which of these files, as a pattern with `*`, `?`, `[…]` and `**`; without, all."""


class Data(Wire, frozen=True):
    """What the flow reads."""

    pin: Pin = Pin.AT_ADMISSION
    """When the sources are read to find the digests: once, when a generation is admitted."""
    snapshots: Annotated[tuple[Snapshot, ...], msgspec.Meta(max_length=MAX_SNAPSHOTS)] = ()
    """Data by name."""
    pond: PondUse = PondUse()
    """The store next to the workers."""
    outputs: Annotated[tuple[Output, ...], msgspec.Meta(max_length=MAX_OUTPUTS)] = ()
    """What is kept of the files that steps write, once the flow has succeeded: snapshots in the
    pond, on the nodes where they were written, as long as the generation is kept."""


class Replay(Wire, frozen=True):
    """A generation that repeats an earlier one."""

    generation: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)]
    """Number of the generation that is a replay; for other generations the field has no effect."""
    of: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)]
    """Number of the earlier generation whose data and flow it repeats, whatever else the spec says
    of them."""


class SyncSetSpec(Wire, frozen=True):
    """What runs, where, and on which data.

    Within a generation only `run`, `suspend`, `deadlineSeconds`, `keep`, `killTimestamp`, the
    replicas of elastic groups, and `priority` before the flow begins can be changed; anything, if
    `generation` rises.
    """

    resources: Resources
    """The workers, and what else belongs to the set."""
    flow: flow.Flow
    """The steps."""
    data: Data = Data()
    """What the flow reads."""
    generation: Annotated[int, msgspec.Meta(ge=1, le=MAX_GENERATION)] = 1
    """Number of the generation that is wanted. It may only rise; a higher one ends the one before
    and starts again, on data as it is then."""
    run: Annotated[int, msgspec.Meta(ge=1)] = 1
    """It may only rise within a generation. Higher than `status.run`, what failed of the generation
    runs again once it is over, and what comes after it, on the same data. `kiln retry --failed`
    writes it."""
    replay: Replay | None = None
    """Which earlier generation this one repeats. `kiln replay` writes it."""
    backend: Backend = Backend.AUTO
    """How groups start together. `local`: the workers are processes of one machine; the flow starts
    when all are connected. `pods`: Pods wait at a gate until there is room for all, and data.
    `auto`: `local` if every node is one of kilnwork's on this machine, else `pods`."""
    suspend: bool = False
    """Start nothing of the flow, and no workers before it began; what runs goes on."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000_000, le=1_000_000_000)] = 0
    """With backend `pods` a set that waits for room holds back those of lower priority, if it could
    start on empty nodes; nothing that runs is stopped for it. Tasks of higher priority come first
    on slots that they share. It may be changed until the flow begins."""
    deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=task.MAX_S)] | None = None
    """Seconds from its admission for the whole generation; then it fails, `DeadlineExceeded`. They
    start again when what failed runs again."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) when the generation is killed. `kiln cancel` writes it."""
    keep: Keep = Keep()
    """How long finished generations are kept."""

    @property
    def replay_of(self) -> int | None:
        """The generation that the wanted one repeats, None if it is none."""
        if self.replay is None or self.replay.generation != self.generation:
            return None
        return self.replay.of


class Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all structs of a status."""


class SnapshotStatus(Status, frozen=True):
    """A snapshot of the newest generation."""

    digest: str = ""
    """Digest of the snapshot, `sha256:…`, as soon as it is pinned; it never changes after."""
    bytes: int = 0
    """Bytes of all its files."""
    shards: int = 0
    """Number of its shards; 0: it is one piece."""
    nodes_ready: int = 0
    """Nodes that hold what they need of it."""
    nodes_wanted: int = 0
    """Nodes that need it."""


class OutputStatus(Status, frozen=True):
    """An output of the newest generation."""

    digest: str = ""
    """Digest of the snapshot, `sha256:…`."""
    bytes: int = 0
    """Bytes of all its files."""
    files: int = 0
    """Number of its files."""
    nodes: int = 0
    """Nodes that hold files of it."""


class GroupStatus(Status, frozen=True):
    """A group of the newest generation."""

    cluster: str = ""
    """Name of its TaskCluster."""
    desired: int = 0
    """Workers that the spec asks for."""
    min: int = 0
    """Workers without which nothing starts."""
    gated: int = 0
    """Pods that wait at their gate: for the others, or for data."""
    ready: int = 0
    """Workers that are connected."""


class StepStatus(Status, frozen=True):
    """A step of the flow, all of its instances together."""

    state: str = ""
    """Where it is."""
    total: int = 0
    """Its tasks, as far as they are known."""
    succeeded: int = 0
    """Tasks that succeeded."""
    failed: int = 0
    """Tasks that failed for good."""
    running: int = 0
    """Tasks that run."""
    reused: int = 0
    """Tasks whose result was known from an earlier generation."""


class FlowStatus(Status, frozen=True):
    """The flow of the newest generation."""

    steps: dict[str, StepStatus] = {}
    """Steps by name."""


class BackendRef(Status, frozen=True):
    """What starts the groups together."""

    backend: str = ""
    """`local` or `pods`."""
    kind: str = ""
    """Kind of the objects that are the groups."""
    names: tuple[str, ...] = ()
    """Names of these objects."""


class GenerationStatus(Status, frozen=True):
    """A generation that is over and can be replayed."""

    generation: int
    """Its number."""
    phase: str = ""
    """How it ended."""
    replay_of: int | None = None
    """Number of the generation that it repeated."""
    finish_time: str | None = None
    """When it ended."""
    digests: dict[str, str] = {}
    """Digests of its snapshots by name."""
    outputs: dict[str, str] = {}
    """Digests of its outputs by name."""


class SyncSetStatus(Status, frozen=True):
    """Where the newest generation is, and what it waits for."""

    phase: str = ""
    """Where the newest generation is."""
    reason: str = ""
    """Why it is there, as one word."""
    message: str = ""
    """The facts of the case: what is waited for, and where."""
    generation: int = 0
    """Number of the newest generation that was admitted."""
    run: int = 1
    """The `spec.run` that was taken up."""
    replay_of: int | None = None
    """Number of the generation that it repeats."""
    admission_time: str | None = None
    """When it was admitted, or taken up again."""
    start_time: str | None = None
    """When its flow began."""
    finish_time: str | None = None
    """When it ended."""
    snapshots: dict[str, SnapshotStatus] = {}
    """Snapshots by name."""
    groups: dict[str, GroupStatus] = {}
    """Groups by name."""
    flow: FlowStatus = FlowStatus()
    """The flow."""
    result: task.Result | None = None
    """Result of the flow, only when it succeeded."""
    outputs: dict[str, OutputStatus] = {}
    """Outputs by name, only when it succeeded. One whose step was skipped is left out."""
    backend_ref: BackendRef | None = None
    """What starts the groups together."""
    data_ready: str = ""
    """Nodes that hold their data, of all that need it, such as `2/3`."""
    gang: str = ""
    """Workers that are connected, of all wanted, such as `4/4`."""
    progress: str = ""
    """Tasks of the flow that succeeded, of all known, such as `17/64`."""
    generations: tuple[GenerationStatus, ...] = ()
    """Generations that are over, newest first; as many as `keep.generations`."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """`SnapshotPinned`, `DataReady`, `GangReady`, `FlowRunning`, `Succeeded`."""


class SyncSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Workers that start together next to their data, and the flow that they run on it."""

    metadata: meta.ObjectMeta
    spec: SyncSetSpec
    status: SyncSetStatus = SyncSetStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "SyncSet"
