"""The port between the SyncSet controller and the backends of gangs.

Values and the protocol; no decisions. Implemented by `local_backend` and `pods_backend`, which run
one suite of contract tests. A backend for a gang scheduler would fit, too: it makes the same groups
as one object of its own.
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
    """How much it matters to be next to the data; `NONE`: not at all."""
    fails: bool = False
    """Whether the gang is broken when one of its workers ends."""
    elastic: bool = False
    """Whether it grows and shrinks while the flow runs."""
    spawns_on: str = ""
    """TaskCluster of what its tasks spawn without naming one; "": the same."""
    portions: int = 0
    """How many portions of the data its workers share; 0: each node holds all that it needs."""


class DataPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a generation's data, and what workers wait for."""

    lead: bool = False
    """Workers start where the data is; if False, the data goes where they are."""
    nodes: frozenset[str] = frozenset()
    """Nodes that have an agent of the pond: workers go nowhere else."""
    ready: frozenset[str] = frozenset()
    """Nodes that hold all that is wanted of them, checked, where workers can see it."""
    held: data_portions.Places = {}
    """Portions that nodes hold (checked and visible to workers) of groups that share data."""
    wanted: data_portions.Places = {}
    """Portions that nodes were last ordered to hold: while they fetch, their workers keep these."""
    near: Mapping[str, Mapping[str, int]] = {}
    """By group and node, the bytes held of data that the group wants to be near to."""
    path: str = ""
    """The directory of the data on every node."""
    writable: bool = False
    outputs: str = ""
    """Directory into which tasks write what is kept, "" if nothing is."""


class GangSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The gang that one generation of a SyncSet wants. `data`: None if it has none."""

    namespace: str
    name: str
    """Name of the SyncSet."""
    uid: str
    generation: int
    groups: tuple[GroupSpec, ...]
    wait_s: float
    requeue: bool
    """After `wait_s` all members are deleted and the gang starts again; if False, it is reported
    (`timed_out`)."""
    data: DataPlaces | None = None
    priority: int = 0
    """With backend `pods`: a gang that waits holds back those of lower priority."""
    running_since: float | None = None
    """When the flow began (wall clock): from then on members start and end one by one."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed counts of a group."""

    desired: int
    min: int
    gated: int = 0
    """Pods that wait at their gate."""
    ready: int = 0
    """Workers that are connected."""


class GangState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of a gang.

    `nodes`: those that members are on, or will go to: where the data has to be. `portions`: those
    that each of them needs, of groups that share data. `reason` and `message`: what is waited for,
    while the gang is not `ready`. `timed_out`: others were missing for too long, and `requeue` is
    False. `broken`: which member ended of a group that `fails`, "" if none. `again_s`: when to look
    again even without a change.
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
    """Starts the groups of a gang together. Every method may be repeated, also after a crash at any
    point."""

    async def ensure(self, spec: GangSpec) -> GangState:
        """Bring the gang closer to the spec; return its state."""
        ...

    async def observe(self, spec: GangSpec) -> GangState:
        """Return the state of the gang; change nothing."""
        ...

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete all groups of a SyncSet but those of one generation; True when none is left."""
        ...
