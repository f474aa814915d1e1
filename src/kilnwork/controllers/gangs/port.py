"""The port between the SyncSet controller and the backends of gangs.

Values and the protocol; no decisions. Implemented by `processes_backend` and `pods_backend`, which
run the same contract tests. A backend for a gang scheduler is possible, too: it would create the
same groups as one object of its own.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kilnwork.api import reasons, sync_set
from kilnwork.controllers.gangs import data_portions


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One group of workers that a gang needs."""

    name: str
    cluster: str
    """Name of the group's TaskCluster."""
    replicas: int
    min: int
    slots: int = 1
    account: str | None = None
    template: dict[str, Any] | None = None
    near: sync_set.NearMode = sync_set.NearMode.NONE
    """How strongly workers prefer nodes with their data; `NONE`: not at all."""
    fails: bool = False
    """Whether the gang is broken when a worker of the group ends."""
    elastic: bool = False
    """Whether the group grows and shrinks while the flow runs."""
    spawns_on: str = ""
    """TaskCluster on which tasks of this group spawn tasks if they name no TaskCluster; "": the
    group's own TaskCluster."""
    portions: int = 0
    """Number of portions into which the data of the group's workers is divided; 0: each node holds
    all data that it needs."""


class DataPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a generation's data on nodes, and the data that workers wait for."""

    lead: bool = False
    """Whether workers start where the data is; otherwise the data is fetched to the workers."""
    nodes: frozenset[str] = frozenset()
    """Nodes that have an agent of the pond: workers run only on these."""
    ready: frozenset[str] = frozenset()
    """Nodes that hold all data that they should hold, verified and visible to workers."""
    held: data_portions.Places = {}
    """Portions that nodes hold (verified and visible to workers), of groups with divided data."""
    wanted: data_portions.Places = {}
    """Portions that nodes were last ordered to hold: their workers keep these while the nodes
    fetch."""
    near: Mapping[str, Mapping[str, int]] = {}
    """Bytes that each node holds of the data near which a group should run, by group and node."""
    path: str = ""
    """The directory of the data, the same on every node."""
    writable: bool = False
    outputs: str = ""
    """Directory for output files of tasks; "" if there are no outputs."""


class GangSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The gang that one generation of a SyncSet needs. `data`: the places of its data; None if it
    has no data.
    """

    namespace: str
    name: str
    """Name of the SyncSet."""
    uid: str
    generation: int
    groups: tuple[GroupSpec, ...]
    wait_s: float
    requeue: bool
    """Whether started members are deleted after `wait_s` and the gang starts again; otherwise
    `timed_out` is reported."""
    data: DataPlaces | None = None
    priority: int = 0
    """With backend `pods`: a waiting gang holds back gangs of lower priority."""
    running_since: float | None = None
    """When the flow started (wall clock): from then on members start and end individually."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of a group, as counts of its workers."""

    desired: int
    min: int
    gated: int = 0
    """Number of Pods that wait at their scheduling gate."""
    ready: int = 0
    """Number of workers that are connected."""


class GangState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of a gang."""

    groups: Mapping[str, GroupState]
    ready: bool = False
    nodes: frozenset[str] = frozenset()
    """Nodes of the gang's members, present or planned: the data must be there."""
    portions: data_portions.Places = {}
    """Portions that each node of the gang needs, of groups with divided data."""
    reason: reasons.SetReason = reasons.SetReason.WAITING_FOR_WORKERS
    """Why the gang is not `ready`; GANG_READY if it is."""
    message: str = ""
    timed_out: bool = False
    """Whether members were missing for too long, and `requeue` is False."""
    broken: str = ""
    """The member that has ended in a group that `fails`; "" if there is none."""
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""


class Backend(Protocol):
    """A backend, which starts the groups of a gang together.

    All methods may be repeated, also after a crash at any point.
    """

    async def ensure(self, spec: GangSpec) -> GangState:
        """Bring the gang closer to its spec; return its state."""
        ...

    async def observe(self, spec: GangSpec) -> GangState:
        """Return the state of the gang; change nothing."""
        ...

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete all groups of a SyncSet except those of the generation `but`; return whether none
        of them is left.
        """
        ...
