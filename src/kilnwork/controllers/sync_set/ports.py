"""The ports between the SyncSet controller, the engine of flows and the ponds.

Implemented by `jobs.flows` and `controllers.data_pond`. Everything may be repeated; every pass
states again what is wanted.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import model
from kilnwork.data.pond import manifest
from kilnwork.jobs.flows import model as flow_model


class Flows(Protocol):
    """The engine of flows. What a coroutine method did is durable when it returns."""

    async def start(self, new: flow_model.NewFlowRun) -> flow_model.FlowRunView:
        """Start a run; a known one is returned unchanged."""
        ...

    async def suspend(self, key: flow_model.FlowKey, *, suspended: bool) -> None:
        """Suspend or resume a run; running tasks continue in any case."""
        ...

    async def kill(self, key: flow_model.FlowKey, *, reason: str, message: str) -> None:
        """Kill a run. Finished or unknown: nothing happens."""
        ...

    async def retry(self, key: flow_model.FlowKey, *, run: int) -> flow_model.FlowRunView | None:
        """Start the given run of a finished flow, for what has failed. Repeatable."""
        ...

    async def forget(self, key: flow_model.FlowKey) -> None:
        """Forget a run; a running one is killed first."""
        ...

    async def reshard(
        self, key: flow_model.FlowKey, shards: Mapping[str, list[Any]]
    ) -> flow_model.NewFlowRun | None:
        """Divide snapshots that no step has named yet again; return what the run works with."""
        ...

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """Return the stored view of a run."""
        ...

    def stored(self, key: flow_model.FlowKey) -> flow_model.NewFlowRun | None:
        """Return what a run was started with."""
        ...

    async def steps(
        self, key: flow_model.FlowKey, *, step: str = "", after: str = "", limit: int = 100
    ) -> list[flow_model.InstanceView]:
        """Step instances and their shards, `limit` of them behind the key `after`."""
        ...

    def code(self) -> dict[str, set[bytes]]:
        """Digests of the blobs with code that runs name, by namespace."""
        ...

    async def changes(self, since: int) -> tuple[int, list[flow_model.FlowRunView]]:
        """Wait for something newer than `since`; 0 gives every run. The progress of running jobs is
        only in `view`."""
        ...


class Pond(msgspec.Struct, frozen=True, kw_only=True):
    """A DataPond as a generation sees it: `path`, the directory of its snapshots on every node;
    `outputs`, that into which its tasks write; `nodes`, those whose agents report."""

    path: str
    nodes: frozenset[str] = frozenset()
    outputs: str = ""


class PondLedger(Protocol):
    """The ledger of all ponds: what is wanted of them, and what is there."""

    def state(self, namespace: str, name: str) -> object | None:
        """Return the state of a DataPond, None if there is none."""
        ...

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Return nodes whose agents report."""
        ...

    def directory(self, namespace: str, pond: str, lease: str) -> str | None:
        """Return where a lease's snapshots are on every node."""
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
        """Merge files that attempts have written on some nodes into one snapshot."""
        ...

    def forget_output(self, namespace: str, pond: str, request: str) -> None:
        """Forget a pin that is not needed any more."""
        ...

    def outputs_directory(self, namespace: str, pond: str, lease: str) -> str:
        """Return where tasks of a lease's run write on every node."""
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
        """Say what these nodes are to hold for this lease; `outputs`: its tasks write files."""
        ...

    def release(self, namespace: str, pond: str, lease: str) -> None:
        """Release the lease."""
        ...

    def ready(self, namespace: str, pond: str, lease: str) -> Mapping[str, model.Readiness]:
        """Return how far the nodes of a lease are."""
        ...

    def holders(self, namespace: str, pond: str, digest: str) -> Mapping[str, int]:
        """Return bytes of a snapshot by node."""
        ...

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None:
        """Return the files of a snapshot, if they are known."""
        ...

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Pond and lease of all that are wanted or held."""
        ...

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have this called when something has changed."""
        ...
