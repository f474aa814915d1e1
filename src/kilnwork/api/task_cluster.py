"""Kind TaskCluster: warm worker capacity, as Pods that each offer slots.

Used by the CRDs, by validation and by the controllers.
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, task


class Runtime(enum.StrEnum):
    """How the program of a task is run; see `TaskClusterSpec.runtime`."""

    AUTO = "Auto"
    AGENT = "Agent"
    EPHEMERAL_CONTAINERS = "EphemeralContainers"


class StrategyType(enum.StrEnum):
    """How outdated workers are replaced; see `Strategy.type`."""

    ROLLING_UPDATE = "RollingUpdate"


class RollingUpdate(task.Wire, frozen=True):
    """Parameters of a rolling update. The defaults are those of a DaemonSet, since workers often
    fill their machines: one worker drains, and its replacement starts when it has ended."""

    max_unavailable: Any = 1
    """Maximum number of workers that may be missing or draining during the update: a number, or a
    percentage of `replicas`, rounded down."""
    max_surge: Any = 0
    """Maximum number of workers above `replicas` during the update: a number, or a percentage of
    `replicas`, rounded up. If both fields are 0, `maxUnavailable` counts as 1."""


class Strategy(task.Wire, frozen=True):
    """How workers that were created from an older template are replaced."""

    type: StrategyType = StrategyType.ROLLING_UPDATE
    """Type of the replacement. The only type is `RollingUpdate`: an outdated worker gets no new
    tasks, finishes those that it has, and ends."""
    rolling_update: RollingUpdate | None = None
    """Parameters of the rolling update. Unset: the defaults of its fields."""


class TaskClusterSpec(task.Wire, frozen=True):
    """The desired number of workers and what they may do."""

    replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """Number of workers. With 0, tasks wait."""
    deployment_name: task.Name | None = None
    """Prefix of the names of the Pods. Unset: the name of the TaskCluster."""
    service_account_name: task.Name | None = None
    """ServiceAccount whose rights the tasks have. Unset: they have none."""
    slots_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of tasks that a worker runs at once."""
    runtime: Runtime = Runtime.AUTO
    """How the program of a task is run. `Agent`: by the worker, in its own container, whatever the
    image of the task. `Auto`: by the worker, but in a Pod of its own if the task has another image
    than the worker. `EphemeralContainers`: in a container of its own, added to a worker's Pod.
    Calls of Python functions always run in the worker."""
    drain_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 300
    """Number of seconds for which running tasks may continue after the TaskCluster is deleted;
    then they are stopped. 0 stops them immediately. Tasks that are not on a worker yet fail
    immediately."""
    strategy: Strategy | None = None
    """How workers are replaced after a change of the template, in the form of a Deployment's
    strategy. Unset: the defaults of its fields."""
    template: dict[str, Any] | None = None
    """PodTemplateSpec of the workers. Its container `worker`, or else its first container, becomes
    the worker: command, arguments and the variables of the worker are replaced, and
    `restartPolicy` is `Always`."""


class Slots(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Numbers of slots."""

    total: int = 0
    """Number of slots of connected workers."""
    busy: int = 0
    """Number of slots that run a task."""


class TaskClusterStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The observed number of workers, and how busy they are."""

    replicas: int = 0
    """Number of Pods that exist and are not being deleted."""
    ready_replicas: int = 0
    """Number of workers that are connected."""
    available_replicas: int = 0
    """Number of workers that are connected; the same as `readyReplicas`."""
    updated_replicas: int = 0
    """Number of Pods that were created from the current template."""
    outdated_replicas: int = 0
    """Number of Pods that were created from an older template and will be replaced."""
    slots: Slots = Slots()
    """Slots of connected workers."""
    queued: int = 0
    """Number of tasks that wait for a slot."""
    selector: str = ""
    """Label selector of the worker Pods as a string, for autoscalers."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
    conditions: tuple[meta.Condition, ...] = ()
    """Whether there are workers: `Available`, `Ready`; `FieldsIgnored`: fields without effect."""


class TaskCluster(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Warm worker capacity."""

    metadata: meta.ObjectMeta
    spec: TaskClusterSpec = TaskClusterSpec()
    status: TaskClusterStatus = TaskClusterStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskCluster"
