"""The ports between the SyncSet controller, the engine of flows and the ponds.

Implemented by `jobs.flows` and `controllers.data_pond`. All calls may be repeated; each pass
states the complete wanted state again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import model
from kilnwork.data.pond import manifest
from kilnwork.jobs.flows import model as flow_model


class Flows(Protocol):
    """The engine of flows. The effect of a coroutine method is durable when it returns."""

    async def start(self, new: flow_model.NewFlowRun) -> flow_model.FlowRunView:
        """Start a run; a known run is returned unchanged."""
        ...

    async def suspend(self, key: flow_model.FlowKey, *, suspended: bool) -> None:
        """Suspend or resume a run; running tasks always continue."""
        ...

    async def kill(self, key: flow_model.FlowKey, *, reason: str, message: str) -> None:
        """Kill a run. A finished or unknown run is ignored."""
        ...

    async def retry(self, key: flow_model.FlowKey, *, run: int) -> flow_model.FlowRunView | None:
        """Start a numbered run of a finished flow, for its failed parts. Repeatable."""
        ...

    async def forget(self, key: flow_model.FlowKey) -> None:
        """Forget a run; a running one is killed first."""
        ...

    async def reshard(
        self, key: flow_model.FlowKey, shards: Mapping[str, list[Any]]
    ) -> flow_model.NewFlowRun | None:
        """Divide snapshots again that no step has used yet; return the resulting definition of
        the run."""
        ...

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """Return the stored view of a run."""
        ...

    def stored(self, key: flow_model.FlowKey) -> flow_model.NewFlowRun | None:
        """Return the definition with which a run was started."""
        ...

    async def steps(
        self, key: flow_model.FlowKey, *, step: str = "", after: str = "", limit: int = 100
    ) -> list[flow_model.InstanceView]:
        """Return step instances and their shards: up to `limit` of them after the key `after`."""
        ...

    def code(self) -> dict[str, set[bytes]]:
        """Return the digests of the code blobs of all runs, by namespace."""
        ...

    async def changes(self, since: int) -> tuple[int, list[flow_model.FlowRunView]]:
        """Wait for changes after `since`; with 0, return all runs. The progress of running jobs
        is only in `view`."""
        ...


class Pond(msgspec.Struct, frozen=True, kw_only=True):
    """A DataPond as a generation uses it."""

    path: str
    """Directory of the generation's snapshots, the same on every node."""
    nodes: frozenset[str] = frozenset()
    """Nodes whose agents report."""
    outputs: str = ""
    """Directory in which its tasks write output files."""


class PondLedger(Protocol):
    """The ledger of all ponds: what is wanted of them, and what they hold."""

    def state(self, namespace: str, name: str) -> object | None:
        """Return the state of a DataPond, or None if there is none."""
        ...

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Return the nodes whose agents report."""
        ...

    def directory(self, namespace: str, pond: str, lease: str) -> str | None:
        """Return the directory of a lease's snapshots, the same on every node."""
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
        """Request the digest of a source; the same `request` always gives the same digest."""
        ...

    def forget_pin(self, namespace: str, pond: str, request: str) -> None:
        """Forget a pin that is not needed any more."""
        ...

    def want_output(
        self,
        namespace: str,
        pond: str,
        *,
        request: str,
        lease: str,
        attempts: Mapping[str, tuple[str, ...]],
        glob: str = "",
    ) -> model.Pin:
        """Merge files that attempts have written on several nodes into one snapshot."""
        ...

    def forget_output(self, namespace: str, pond: str, request: str) -> None:
        """Forget a pin that is not needed any more."""
        ...

    def outputs_directory(self, namespace: str, pond: str, lease: str) -> str:
        """Return the directory in which tasks of a lease's run write, the same on every node."""
        ...

    def want(
        self,
        namespace: str,
        pond: str,
        lease: str,
        *,
        nodes: Collection[str] | None,
        snapshots: Sequence[model.WantedSnapshot],
        outputs: bool = False,
    ) -> None:
        """Set what these nodes should hold for the lease. `outputs`: whether its tasks write
        files."""
        ...

    def release(self, namespace: str, pond: str, lease: str) -> None:
        """Release the lease."""
        ...

    def ready(self, namespace: str, pond: str, lease: str) -> Mapping[str, model.Readiness]:
        """Return the progress of the nodes of a lease."""
        ...

    def holders(self, namespace: str, pond: str, digest: str) -> Mapping[str, int]:
        """Return the bytes of a snapshot, by node."""
        ...

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None:
        """Return the files of a snapshot, if they are known."""
        ...

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return the pond and name of all leases that are wanted or held."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Register a callback for changes."""
        ...
