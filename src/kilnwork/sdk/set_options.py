"""Options of `kiln.SyncSet` and its groups, with the fields of the object that they set.

Used by `sync_sets`. Options of steps are in `set_steps`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from kilnwork.sdk import set_expressions

Expression = set_expressions.Expression


class GroupOptions(TypedDict, total=False):
    """The options of `SyncSet.group`.

    `replicas`: number of workers, or a snapshot: one worker for each of its shards. `slots`: tasks
    that a worker runs at once. `least`: minimum number of workers to start with; default: all of
    them. `most`: maximum number of workers if the number is changed while the flow runs. `near`:
    snapshots near which workers should be placed, and `near_mode` how strictly. `template`: a
    PodTemplateSpec. `service_account`: the account whose rights the tasks get. `on_pod_failed`:
    what follows when a worker ends.
    """

    replicas: "int | SnapshotHandle"
    slots: int
    least: int
    most: int
    near: "Sequence[SnapshotHandle]"
    near_mode: Literal["preferred", "required", "none"]
    template: Mapping[str, Any]
    service_account: str
    on_pod_failed: Literal["replace", "fail"]


GROUP_FIELDS = {
    "slots": "slotsPerWorker",
    "least": "min",
    "near_mode": "nearMode",
    "template": "template",
    "service_account": "serviceAccountName",
    "on_pod_failed": "onPodFailed",
}


class SnapshotHandle:
    """A snapshot of a set: an input of steps; `each` iterates over its shards if it is divided."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def as_expression(self) -> Expression:
        """The snapshot as an input: a document for `kiln.Snapshot`."""
        return Expression("data.", self.name)

    def __repr__(self) -> str:
        return f"<SnapshotHandle {self.name}>"


class Setting(NamedTuple):
    """An option of a set and the field of the spec that it sets."""

    name: str
    path: tuple[str, ...]


SETTINGS = (
    Setting("backend", ("backend",)),
    Setting("suspend", ("suspend",)),
    Setting("priority", ("priority",)),
    Setting("deadline", ("deadlineSeconds",)),
    Setting("timeout", ("flow", "timeoutSeconds")),
    Setting("keep", ("keep", "generations")),
    Setting("ttl", ("keep", "ttlSeconds")),
    Setting("order", ("data", "pond", "order")),
    Setting("data_timeout", ("data", "pond", "timeoutSeconds")),
    Setting("gang_wait", ("resources", "gang", "waitSeconds")),
    Setting("gang_timeout", ("resources", "gang", "onTimeout")),
)


class SetOptions(TypedDict, total=False):
    """The options of `SyncSet` besides its name. Times are in seconds.

    `backend`: how workers start together. `suspend`: start nothing until the set is resumed.
    `priority`: of its tasks. `deadline`: for the whole generation; `timeout`: for its flow. `keep`:
    how many generations can be replayed. `ttl`: time until a finished set is deleted. `order`:
    whether data or workers come first, and `data_timeout` how long pinning and fetching may take.
    `gang_wait`: how long workers that have a node wait for the others, and `gang_timeout` what
    follows.
    """

    backend: Literal["auto", "local", "pods"]
    suspend: bool
    priority: int
    deadline: int
    timeout: float
    keep: int
    ttl: int
    order: Literal["auto", "lead", "follow"]
    data_timeout: int
    gang_wait: int
    gang_timeout: Literal["requeue", "fail"]
