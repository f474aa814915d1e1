"""Options of `kiln.SyncSet` and of its groups, with the fields of the SyncSet that they set.

Used by `sync_sets`. Options of steps are in `set_steps`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from kilnwork.sdk import set_expressions

Expression = set_expressions.Expression


class GroupOptions(TypedDict, total=False):
    """The options of `SyncSet.group`.

    `replicas`: the number of workers, or a snapshot: one worker for each of its shards. `slots`:
    the number of tasks that a worker runs at once. `least`: the minimum number of workers to start
    with; by default all of them. `most`: the maximum number of workers if the number is changed
    while the flow runs. `near`: snapshots near which workers should be placed; `near_mode`: how
    strictly. `template`: the PodTemplateSpec of the workers. `service_account`: the ServiceAccount
    whose rights the tasks get. `on_pod_failed`: whether a worker that has ended is replaced, or the
    generation fails.
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
    """A snapshot of a SyncSet, as an input of steps; `each` iterates over its shards, if it has
    any.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def as_expression(self) -> Expression:
        """The snapshot as an input: a document for `kiln.Snapshot`."""
        return Expression("data.", self.name)

    def __repr__(self) -> str:
        return f"<SnapshotHandle {self.name}>"


class Setting(NamedTuple):
    """An option of a SyncSet and the field of the spec that it sets."""

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

    `backend`: the way in which workers start together. `suspend`: start nothing until the set is
    resumed. `priority`: the priority of its tasks. `deadline`: the time limit of the whole
    generation; `timeout`: the time limit of its flow. `keep`: the number of generations that can be
    replayed. `ttl`: the time until a finished set is deleted. `order`: whether data or workers come
    first; `data_timeout`: the time limit of pinning and fetching. `gang_wait`: how long workers
    that have a node wait for the other workers; `gang_timeout`: what happens then.
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
