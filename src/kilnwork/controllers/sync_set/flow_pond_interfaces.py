"""The ports between the SyncSet controller, the engine of flows and the ponds.

Implemented by `jobs.flows` and `controllers.data_pond`. All calls may be repeated; each pass states
the complete wanted state again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import model
from kilnwork.data.pond import manifest
from kilnwork.jobs.flows import run_types as flow_model


class Flows(Protocol):
    """Port of the engine of flows. The effect of a coroutine method is durable when it returns."""

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
        """Run the failed parts of a finished flow again, as run number `run`. Repeatable."""
        ...

    async def forget(self, key: flow_model.FlowKey) -> None:
        """Forget a run; a running one is killed first."""
        ...

    async def reshard(
        self, key: flow_model.FlowKey, shards: Mapping[str, list[Any]]
    ) -> flow_model.NewFlowRun | None:
        """Divide again the snapshots that no step has used yet; return the resulting definition of
        the run.
        """
        ...

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """Return the stored view of a run, or None if the engine does not have it."""
        ...

    def stored(self, key: flow_model.FlowKey) -> flow_model.NewFlowRun | None:
        """Return the definition with which a run was started, or as `reshard` has changed it; None
        if the engine does not have the run.
        """
        ...

    async def steps(
        self, key: flow_model.FlowKey, *, step: str = "", after: str = "", limit: int = 100
    ) -> list[flow_model.InstanceView]:
        """Return instances of steps and their shards: up to `limit` instances after the key
        `after`.
        """
        ...

    def code(self) -> dict[str, set[bytes]]:
        """Return the digests of the code blobs of all runs, by namespace."""
        ...

    async def changes(self, since: int) -> tuple[int, list[flow_model.FlowRunView]]:
        """Wait for changes of runs after revision `since`; return the new revision and the changed
        runs. With 0, return all.

        The progress of running jobs is only in `view`.
        """
        ...


class Pond(msgspec.Struct, frozen=True, kw_only=True):
    """The DataPond that a generation uses."""

    path: str
    """Directory of the generation's snapshots, the same on every node."""
    nodes: frozenset[str] = frozenset()
    """Nodes whose agents report."""
    outputs: str = ""
    """Directory in which tasks of the generation write output files."""


class PondLedger(Protocol):
    """The ledger of all ponds: the data that users want on nodes, and the data that nodes hold."""

    def state(self, namespace: str, name: str) -> object | None:
        """Return the state of a DataPond, or None if there is none."""
        ...

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Return the nodes whose agents currently report."""
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
        """Request that a source is converted to a snapshot, and return the progress as a pin; the
        same `request` gives the same pin until `forget_pin`.
        """
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
        """Request that files which attempts have written on several nodes are merged into one
        snapshot; return the progress as a pin.
        """
        ...

    def forget_output(self, namespace: str, pond: str, request: str) -> None:
        """Forget the pin of an output that is not needed any more."""
        ...

    def outputs_directory(self, namespace: str, pond: str, lease: str) -> str:
        """Return the directory in which the tasks of a run write their outputs, the same on every
        node.
        """
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
        """Set the snapshots that `nodes` should hold for a lease. `outputs`: whether its tasks
        write files.
        """
        ...

    def release(self, namespace: str, pond: str, lease: str) -> None:
        """Release a lease, so that nodes may drop its data."""
        ...

    def ready(self, namespace: str, pond: str, lease: str) -> Mapping[str, model.Readiness]:
        """Return the progress of each node with the data of a lease."""
        ...

    def holders(self, namespace: str, pond: str, digest: str) -> Mapping[str, int]:
        """Return how many bytes of a snapshot each node holds."""
        ...

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None:
        """Return the manifest of a snapshot, which lists its files; None if the ledger does not
        have it.
        """
        ...

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return the (pond, lease name) pairs of a namespace for all leases that are wanted, or
        that an agent reports and that were not released.
        """
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Register a callback that is called after each change of the ledger."""
        ...
