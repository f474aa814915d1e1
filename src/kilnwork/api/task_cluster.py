"""Kind TaskCluster: warm worker capacity, as Pods that each offer slots.

Used by the CRDs, by validation and by the controllers.
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, task


class Runtime(enum.StrEnum):
    """What runs a task's program: the worker itself, whatever the task's image. Auto: the same."""

    AUTO = "Auto"
    AGENT = "Agent"


class TaskClusterSpec(task.Wire, frozen=True):
    """How many workers and what they may do.

    `deploymentName` (a field of the prototype) is read as the Pods' name prefix, default the
    cluster's name. `serviceAccountName`: the account whose rights tasks get; none by default.
    `slotsPerWorker`: tasks that one worker runs at once. `template`: a PodTemplateSpec to start
    from; its container `worker` (else its first) gets the worker's command and mounts.
    """

    replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    deployment_name: task.Name | None = None
    service_account_name: task.Name | None = None
    slots_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    runtime: Runtime = Runtime.AUTO
    template: dict[str, Any] | None = None


class Slots(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Room for tasks: all, and taken."""

    total: int = 0
    busy: int = 0


class TaskClusterStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`replicas`: Pods that exist; `readyReplicas`: workers connected; `queued`: waiting tasks."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    slots: Slots = Slots()
    queued: int = 0
    observed_generation: int = 0
    conditions: tuple[meta.Condition, ...] = ()


class TaskCluster(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Warm worker capacity."""

    metadata: meta.ObjectMeta
    spec: TaskClusterSpec = TaskClusterSpec()
    status: TaskClusterStatus = TaskClusterStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskCluster"
