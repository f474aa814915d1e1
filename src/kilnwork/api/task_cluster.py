"""Kind TaskCluster: warm worker capacity, as Pods that each offer slots.

Used by the CRDs, by validation and by the controllers.
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, task


class Runtime(enum.StrEnum):
    """What runs a task's program; see `TaskClusterSpec.runtime`."""

    AUTO = "Auto"
    AGENT = "Agent"
    EPHEMERAL_CONTAINERS = "EphemeralContainers"


class StrategyType(enum.StrEnum):
    """How outdated workers are replaced; see `Strategy.type`."""

    ROLLING_UPDATE = "RollingUpdate"


class RollingUpdate(task.Wire, frozen=True):
    """How many workers are replaced at once. The defaults are those of a DaemonSet, as workers
    often fill their machines: one drains, and its place is taken when it has gone."""

    max_unavailable: Any = 1
    """How many workers may be missing or draining for the sake of the new template: a number, or
    a percentage of `replicas`, rounded down."""
    max_surge: Any = 0
    """How many workers there may be above `replicas` meanwhile: a number, or a percentage of
    `replicas`, rounded up. If both are 0, `maxUnavailable` counts as 1."""


class Strategy(task.Wire, frozen=True):
    """How workers that were made from an older template are replaced."""

    type: StrategyType = StrategyType.ROLLING_UPDATE
    """Always `RollingUpdate`: an outdated worker gets nothing new, ends what it has, and goes."""
    rolling_update: RollingUpdate | None = None
    """How many at once; without it, the defaults of its fields."""


class TaskClusterSpec(task.Wire, frozen=True):
    """How many workers and what they may do."""

    replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """Number of workers. With 0 the tasks wait."""
    deployment_name: task.Name | None = None
    """What the names of the Pods begin with; without it, the name of the TaskCluster."""
    service_account_name: task.Name | None = None
    """ServiceAccount whose rights the tasks get; without it they have none."""
    slots_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of tasks that a worker runs at once."""
    runtime: Runtime = Runtime.AUTO
    """What runs a task's program: `Agent`, the worker itself in its own container, whatever the
    task's image; `Auto`, the same, but a Pod of its own for another image than the worker's;
    `EphemeralContainers`, a container of its own that is added to a worker's Pod. Calls of Python
    functions run in the worker in any case."""
    drain_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 300
    """How long a TaskCluster that is deleted lets what runs go on, in seconds; what still runs then
    is stopped. Tasks that no worker has fail at once."""
    strategy: Strategy | None = None
    """How workers are replaced after the template has changed, in the form of a Deployment; without
    it, the defaults of its fields."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec to start from. Its container `worker`, or else its first, becomes the worker:
    command, arguments and the worker's own variables are replaced, restartPolicy is Always."""


class Slots(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Room for tasks."""

    total: int = 0
    """All slots of connected workers."""
    busy: int = 0
    """Slots that run a task."""


class TaskClusterStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """How many workers there are, and how busy they are."""

    replicas: int = 0
    """Pods that exist and are not being deleted."""
    ready_replicas: int = 0
    """Workers that are connected."""
    available_replicas: int = 0
    """Workers that are connected, as `readyReplicas`."""
    updated_replicas: int = 0
    """How many of `replicas` were made from the current template."""
    outdated_replicas: int = 0
    """How many of `replicas` were made from an older template and are to be replaced."""
    slots: Slots = Slots()
    """Room for tasks on connected workers."""
    queued: int = 0
    """Tasks that wait for a slot."""
    selector: str = ""
    """Label selector of the worker Pods, for autoscalers, as text."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """Whether there are workers: `Available`, `Ready`."""


class TaskCluster(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Warm worker capacity."""

    metadata: meta.ObjectMeta
    spec: TaskClusterSpec = TaskClusterSpec()
    status: TaskClusterStatus = TaskClusterStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskCluster"
