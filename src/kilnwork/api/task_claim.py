"""Kind TaskClaim: a user's program claims one task of its executor, and reports on it.

Used by the CRDs and by `controllers.task_claim`. `phase`, `reason`, `message`, `task` and
`killReason` of the status are the manager's; `renewTime`, `progress` and `outcome` the holder's.
"""

import enum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, task, wire


class Phase(enum.StrEnum):
    """The phase of a claim; none before the manager has seen it."""

    WAITING = "Waiting"
    CLAIMED = "Claimed"
    KILLING = "Killing"
    FINISHED = "Finished"


class TaskClaimSpec(wire.Wire, frozen=True):
    """Which task is wanted, and by whom."""

    executor: task.Name
    """Name of the executor, as in `spec.external` of the tasks."""
    holder: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """Who holds the claim, shown as where the task runs. Empty: the name of the claim."""
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """Time after which the holder counts as lost, if it has not changed `status.renewTime`."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=task.MAX_S)] = 300
    """Time after which a finished claim is deleted."""


class AssignedTask(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The task that the holder is to carry out."""

    name: str
    """Name of the Task; of a spawned task its id."""
    id: str
    """Id of the task, a UUID."""
    run: int
    """Number of the run."""
    attempt: int
    """Number of the attempt in this run: the claim is about this one alone."""
    payload: Any = None
    """`spec.external.payload` with its variables replaced."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Inputs of the task by name."""
    output_type: str = "json"
    """What the result must be: `json`, or `bytes`, which are written in base64."""


class ClaimProgress(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """How far the task is."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """From 0 to 1, if it is known."""
    message: str = ""
    """For people."""


class ClaimOutcome(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """How the task has ended: the proof that nothing of it is left. It cannot be changed."""

    state: Annotated[str, msgspec.Meta(pattern="^(Succeeded|Failed|Killed)$")]
    """`Succeeded`, `Failed`, or `Killed` where the phase was `Killing`."""
    result: Any = msgspec.UNSET
    """The result: any JSON, or a string in base64 with `outputType: bytes`."""
    reason: Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9]{0,62})?$")] = ""
    """One word in CamelCase for a failure."""
    message: str = ""
    """For people."""
    retry: bool = True
    """Whether a failure may be tried again, within `spec.retry` of the task."""


class TaskClaimStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """What the manager has assigned, and what the holder reports."""

    phase: str = ""
    """`Waiting`, `Claimed`, `Killing` or `Finished`, by the manager."""
    reason: str = ""
    """How it has finished, by the manager: the reason that the attempt has ended with."""
    message: str = ""
    """The same for people."""
    task: AssignedTask | None = None
    """The task to carry out, by the manager."""
    kill_reason: str = ""
    """Why the task must stop, by the manager: the holder stops it and writes `outcome`."""
    renew_time: str = ""
    """By the holder: any change of it renews the lease, whatever time it names."""
    progress: ClaimProgress | None = None
    """How far the task is, by the holder."""
    outcome: ClaimOutcome | None = None
    """How the task has ended, by the holder, once."""


class TaskClaim(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A claim on one task of an executor, by a program that the user has written."""

    metadata: meta.ObjectMeta
    spec: TaskClaimSpec
    status: TaskClaimStatus = TaskClaimStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskClaim"
