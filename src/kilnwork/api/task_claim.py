"""Kind TaskClaim: a user-written program claims one task of its executor and reports on it.

Used by the CRDs and by `controllers.task_claim`. In the status, `phase`, `reason`, `message`,
`task` and `killReason` are written by the manager; `renewTime`, `progress` and `outcome` by the
holder of the claim.
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, meta, task


class Phase(enum.StrEnum):
    """The phase of a claim. It is empty until the manager has seen the claim."""

    WAITING = "Waiting"
    CLAIMED = "Claimed"
    KILLING = "Killing"
    FINISHED = "Finished"


class TaskClaimSpec(base_struct.Wire, frozen=True):
    """The executor whose task is claimed, and the holder of the claim."""

    executor: task.Name
    """Name of the executor, as in `spec.external.executor` of the tasks."""
    holder: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """Name of the holder of the claim, shown as the place where the task runs. Empty: the name of
    the claim."""
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """Number of seconds after which the holder counts as lost, unless it has changed
    `status.renewTime`. The time starts with the claim, and again when a task is assigned."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=task.MAX_S)] = 300
    """Number of seconds after which a finished claim is deleted."""


class AssignedTask(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The task that the holder carries out."""

    name: str
    """Name of the Task; for a spawned task, its id."""
    id: str
    """Id of the task, a UUID."""
    run: int
    """Number of the run."""
    attempt: int
    """Number of the attempt in this run. The claim covers only this attempt."""
    payload: Any = None
    """`spec.external.payload` of the task, with variables replaced."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Inputs of the task by name."""
    output_type: str = "json"
    """Type of the required result: `json`, or `bytes`, which is written in base64."""


class ClaimProgress(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Progress of the task."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Completed fraction of the task, from 0 to 1, if known."""
    message: str = ""
    """Description of the progress, for people."""


class ClaimOutcome(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """How the task ended. Writing the outcome declares that no process of the task runs any more.
    The outcome cannot be changed."""

    state: Annotated[str, msgspec.Meta(pattern="^(Succeeded|Failed|Killed)$")]
    """Final state: `Succeeded`, `Failed`, or `Killed` if the phase was `Killing`."""
    result: Any = msgspec.UNSET
    """Result of the task: any JSON, or with `outputType: bytes` a base64 string."""
    reason: Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9]{0,62})?$")] = ""
    """Reason for a failure, as one CamelCase word. Reasons with which the manager marks waiting,
    lost and killed tasks are refused. Empty: `Raised`."""
    message: str = ""
    """Details about the end, for people."""
    retry: bool = True
    """Whether a failure may be retried, within `spec.retry` of the task."""


class TaskClaimStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The task that the manager has assigned, and the reports of the holder."""

    phase: str = ""
    """Phase of the claim. Empty: the manager has not seen it yet; `Waiting`: it waits for a task;
    `Claimed`: it has a task; `Killing`: the task must stop; `Finished`: the end of the task is
    stored, or the holder is lost. Written by the manager."""
    reason: str = ""
    """Reason with which the attempt ended. Written by the manager."""
    message: str = ""
    """Details about the end, for people. Written by the manager."""
    task: AssignedTask | None = None
    """Task to carry out. Written by the manager."""
    kill_reason: str = ""
    """Why the task must stop: the holder stops it and then writes `outcome`. Written by the
    manager."""
    renew_time: str = ""
    """Time of the last renewal of the lease. Any change renews the lease, whatever time is written.
    Written by the holder."""
    progress: ClaimProgress | None = None
    """Progress of the task. Written by the holder."""
    outcome: ClaimOutcome | None = None
    """How the task ended. Written by the holder, once, in phase `Claimed` or `Killing`."""


class TaskClaim(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A claim on one task of an executor, by a user-written program."""

    metadata: meta.ObjectMeta
    spec: TaskClaimSpec
    status: TaskClaimStatus = TaskClaimStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskClaim"
