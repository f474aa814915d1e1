"""What the SyncSet controller asks of a gang's backend, and what it gets.

Values and the protocol; no decisions. Implemented by `local_backend` and `pods_backend`, which run
one suite of contract tests. A backend of a gang scheduler fits too: it makes the same groups in one
object of its own, and says the same of them.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kilnwork.api import reasons, sync_set
from kilnwork.controllers.gangs import data_portions


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One group of workers that is wanted. `cluster`: name of its TaskCluster."""

    name: str
    cluster: str
    replicas: int
    min: int
    slots: int = 1
    account: str | None = None
    template: dict[str, Any] | None = None
    near: sync_set.NearMode = sync_set.NearMode.NONE
    """How much it matters to be next to the data; `NONE` if it is near to nothing."""
    fails: bool = False
    """Whether the gang is broken when one of its workers ends."""
    elastic: bool = False
    """Whether it grows and shrinks while the flow runs."""
    spawns_on: str = ""
    """TaskCluster of what its tasks spawn without naming one; "": the same."""
    portions: int = 0
    """How many portions of the data its workers share; 0: each node holds all that it needs."""


class DataPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where the data of a generation is, and what workers wait for."""

    lead: bool = False
    """Workers start where the data is; else the data goes where they are."""
    nodes: frozenset[str] = frozenset()
    """Nodes that have an agent of the pond: workers go nowhere else."""
    ready: frozenset[str] = frozenset()
    """Nodes that hold all that is wanted of them, checked, where workers can see it."""
    held: data_portions.Places = {}
    """Portions that nodes hold, in the same way, of groups that share their data."""
    wanted: data_portions.Places = {}
    """Portions that nodes were asked to hold last: while they fetch, their workers keep these."""
    near: Mapping[str, Mapping[str, int]] = {}
    """By group, how many bytes a node holds of what the group wants to be near to."""
    path: str = ""
    """Directory of it on every node."""
    writable: bool = False
    outputs: str = ""
    """Directory into which tasks write what is kept, "" if nothing is."""


class GangSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one generation of a SyncSet wants. `data`: None if it has none."""

    namespace: str
    name: str
    """Of the SyncSet."""
    uid: str
    generation: int
    groups: tuple[GroupSpec, ...]
    wait_s: float
    requeue: bool
    """After `wait_s` all give their room back and begin anew; else that is told (`timed_out`)."""
    data: DataPlaces | None = None
    priority: int = 0
    """With backend `pods_backend`: a gang that waits holds back those of lower priority."""
    running_since: float | None = None
    """When the flow began (wall clock): from then on members come and go one by one."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a group."""

    desired: int
    min: int
    gated: int = 0
    """Pods that wait at their gate."""
    ready: int = 0
    """Workers that are connected."""


class GangState(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a gang.

    `nodes`: those that members are on, or will go to: where the data has to be. `portions`: what of
    it has to be where, of groups that share it. `reason` and
    `message`: what is waited for and where, while it is not `ready`. `timed_out`: others were
    missing for too long, and `requeue` is False. `broken`: which member ended of a group that
    `fails`, "" if none. `again_s`: when to look again even if nothing is heard of.
    """

    groups: Mapping[str, GroupState]
    ready: bool = False
    nodes: frozenset[str] = frozenset()
    portions: data_portions.Places = {}
    reason: reasons.SetReason = reasons.SetReason.WAITING_FOR_WORKERS
    message: str = ""
    timed_out: bool = False
    broken: str = ""
    again_s: float | None = None


class Backend(Protocol):
    """Starts the groups of a gang together. Every method may be repeated, and crash anywhere."""

    async def ensure(self, spec: GangSpec) -> GangState:
        """Bring the gang closer to what is wanted, and say where it is."""
        ...

    async def observe(self, spec: GangSpec) -> GangState:
        """Say where it is, and change nothing."""
        ...

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Give back all that a SyncSet holds but for one generation; True when nothing is left."""
        ...
