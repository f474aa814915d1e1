"""What the SyncSet controller asks of the engine of flows and of the ponds.

Implemented by `jobs.flows` and `controllers.data_pond`. Everything may be repeated; what is wanted
is said anew in every pass.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from kilnwork.api import attempts, data_pond, flow
from kilnwork.controllers.data_pond import model


class FlowKey(NamedTuple):
    """A run of a flow: the uid of its SyncSet, and the generation."""

    uid: str
    generation: int


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as a flow sees it. `shards`: their documents, None if it is one piece."""

    name: str
    digest: str
    bytes: int = 0
    shards: tuple[Any, ...] | None = None


class NewFlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be started."""

    uid: str
    generation: int
    namespace: str
    set_name: str
    flow: flow.Flow
    snapshots: Mapping[str, SnapshotRef] = {}
    clusters: Mapping[str, str] = {}
    """TaskCluster by group."""
    priority: int = 0


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step, all its instances together."""

    state: str = ""
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    running: int = 0
    reused: int = 0
    reason: str = ""
    message: str = ""


class FlowRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is on disk. `phase`: Running, Succeeded, Failed or Killed."""

    uid: str
    generation: int
    namespace: str
    set_name: str
    phase: str
    steps: Mapping[str, StepView] = {}
    value: attempts.Payload | None = None
    reason: str = ""
    message: str = ""
    suspended: bool = False
    started: float = 0.0
    finished: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.phase != "Running"


class Flows(Protocol):
    """The engine of flows. What a coroutine method did is durable when it returns."""

    async def start(self, new: NewFlowRun) -> FlowRunView:
        """Start a run; one that is known is returned as it is."""
        ...

    async def suspend(self, key: FlowKey, *, suspended: bool) -> None:
        """Start no task, or go on; what runs goes on in any case."""
        ...

    async def kill(self, key: FlowKey, *, reason: str, message: str) -> None:
        """Kill a run. Over, or unknown: nothing happens."""
        ...

    async def forget(self, key: FlowKey) -> None:
        """Nobody asks for a run any more; one that runs is killed first."""
        ...

    def view(self, key: FlowKey) -> FlowRunView | None:
        """A run as it is on disk."""
        ...

    def stored(self, key: FlowKey) -> NewFlowRun | None:
        """What a run was started with."""
        ...

    async def changes(self, since: int) -> tuple[int, list[FlowRunView]]:
        """Wait for something newer than `since`; 0 gives every run."""
        ...


class Pond(msgspec.Struct, frozen=True, kw_only=True):
    """A DataPond as a generation sees it: `path`, the directory of its snapshots on every node;
    `nodes`, those whose agents report."""

    path: str
    nodes: frozenset[str] = frozenset()


class Ledger(Protocol):
    """All ponds: what is wanted of them, and what is there."""

    def state(self, namespace: str, name: str) -> object | None:
        """Something if there is such a DataPond."""
        ...

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Nodes whose agents report."""
        ...

    def directory(self, namespace: str, pond: str, lease: str) -> str | None:
        """Where a lease's snapshots are on every node."""
        ...

    def want_pin(
        self,
        namespace: str,
        pond: str,
        source: data_pond.SnapshotSource,
        *,
        request: str,
        digest: str | None = None,
    ) -> model.Pin:
        """Ask for the digest of a source; the same `request` gives the same."""
        ...

    def forget_pin(self, namespace: str, pond: str, request: str) -> None:
        """Nobody asks for it any more."""
        ...

    def want(
        self,
        namespace: str,
        pond: str,
        lease: str,
        *,
        nodes: Collection[str] | None,
        snapshots: Sequence[model.WantedSnapshot],
    ) -> None:
        """Say what these nodes are to hold for this lease."""
        ...

    def release(self, namespace: str, pond: str, lease: str) -> None:
        """Nobody needs it any more."""
        ...

    def ready(self, namespace: str, pond: str, lease: str) -> Mapping[str, model.Readiness]:
        """How far the nodes of a lease are."""
        ...

    def holders(self, namespace: str, pond: str, digest: str) -> Mapping[str, int]:
        """Bytes of a snapshot by node."""
        ...

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Pond and lease of all that are wanted or held."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have this called when something has changed."""
        ...
