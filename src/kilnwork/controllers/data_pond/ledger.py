"""The ledger of all ponds: which snapshots are wanted on which nodes, and which nodes hold them.

Used by the controllers that need data next to work, and by `server`, which delivers the agents'
reports and their orders. Its methods return the known state immediately; `subscribe` notifies of
changes. It stores nothing on disk: after a restart users request again what they need, agents
report what they have, and nothing is released in between.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from kilnwork.api import data_pond, pond_messages, pond_views
from kilnwork.controllers.data_pond import model, pond_state, rest_views
from kilnwork.data import errors
from kilnwork.data.pond import leases as pond_leases
from kilnwork.data.pond import manifest
from kilnwork.kit import clock

Key = tuple[str, str]
"""Namespace and name of a DataPond."""


class Ledger:
    """The ledger of all ponds, for one event loop: the wanted snapshots and the snapshots that
    nodes hold.

    See the module. `Pin`, `WantedSnapshot` and `Readiness` are in `model`.
    """

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._ponds: dict[Key, pond_state.PondState] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._known: set[Key] = set()
        self._closed = False

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Register a callback that is called from the event loop after each change."""
        self._subscribers.append(callback)

    # For users of data.

    def want_pin(
        self,
        namespace: str,
        pond: str,
        source: data_pond.SnapshotSource,
        *,
        request: str,
        digest: str | None = None,
    ) -> model.Pin:
        """Request that a source is converted to a snapshot, and return the progress as a pin; call
        again after a notification.

        The same `request` gives the same pin until `forget_pin`, whatever happens to the source;
        another request reads the source again. `digest`: the digest that the snapshot must have;
        None for any.
        """
        if (namespace, pond) not in self._known:
            return model.Pin(reason="WaitingForPond", message=_no_pond(namespace, pond))
        found = self._pond(namespace, pond)
        before = found.revision
        pin = found.want_pin(request, source, digest=digest)
        self._wake(found, before)
        return pin

    def forget_pin(self, namespace: str, pond: str, request: str) -> None:
        """Forget a pin whose digest is stored elsewhere. Repeatable."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.forget_pin(request)
        self._wake(found, before)

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
        """Request that files which attempts of a run wrote on several nodes are merged into one
        snapshot; return the progress as a pin.

        Call again after a notification. `attempts`: names of directories in
        `outputs_directory(lease)`, by node; `glob`: selects files in them. The nodes hold the
        snapshot only after a lease requests it there: see `model.Pin.paths_by_node`.
        """
        if (namespace, pond) not in self._known:
            return model.Pin(reason="WaitingForPond", message=_no_pond(namespace, pond))
        found = self._pond(namespace, pond)
        before = found.revision
        pin = found.want_output(request, lease=lease, attempts=attempts, glob=glob)
        self._wake(found, before)
        return pin

    def forget_output(self, namespace: str, pond: str, request: str) -> None:
        """Forget the pin of an output whose digest is stored elsewhere. Repeatable."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.forget_output(request)
        self._wake(found, before)

    def outputs_directory(self, namespace: str, pond: str, lease: str) -> str:
        """Return the directory in which the tasks of a run write their outputs, the same on every
        node; each attempt has a subdirectory.
        """
        return self._pond(namespace, pond).outputs_directory(lease)

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
        """Request snapshots for a lease on `nodes`, or on all nodes of the pond if that is None,
        until the lease is released.

        `outputs`: also provide a directory for files written by tasks of the run. A later call
        replaces nodes and snapshots. Raises LeaseRefused for invalid names.
        """
        leased = tuple(
            pond_leases.LeasedSnapshot(name=s.name, digest=s.digest, paths=s.paths, access=s.access)
            for s in snapshots
        )
        pond_leases.check(pond_leases.Lease(namespace=namespace, name=lease, snapshots=leased))
        found = self._pond(namespace, pond)
        before = found.revision
        found.want(lease, nodes=nodes, snapshots=snapshots, outputs=outputs)
        self._wake(found, before)

    def release(self, namespace: str, pond: str, lease: str) -> None:
        """Release a lease, so that nodes may drop its data. Repeatable."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.release(lease)
        self._wake(found, before)

    def ready(self, namespace: str, pond: str, lease: str) -> dict[str, model.Readiness]:
        """Return the progress of each node with the data of a lease; empty while the lease does not
        exist.
        """
        return self._pond(namespace, pond).ready(lease)

    def holders(self, namespace: str, pond: str, digest: str) -> dict[str, int]:
        """Return how many bytes of a snapshot each reporting node holds, without nodes that hold
        none.
        """
        return self._pond(namespace, pond).holders(digest)

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Return the nodes whose agents currently report."""
        return self._pond(namespace, pond).live()

    def obstacle(self, namespace: str, pond: str) -> str:
        """Return why the agents of a pond do not report, as in the condition `Ready` of the
        DataPond; "" if they do.
        """
        return self._pond(namespace, pond).obstacle

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Return the (pond, lease name) pairs of a namespace for all leases that are wanted, or
        that an agent reports and that were not released.
        """
        return frozenset(
            (pond.name, lease)
            for pond in self._ponds.values()
            if pond.namespace == namespace
            for lease in pond.leases
        )

    def directory(self, namespace: str, pond: str, lease: str) -> str | None:
        """Return the directory of a lease's snapshots, the same on every node; None while the pond
        does not exist.
        """
        root = self._pond(namespace, pond).root
        return f"{root}/runs/{namespace}/{lease}" if root else None

    # For the controller of DataPonds.

    def pond_changed(
        self,
        namespace: str,
        name: str,
        spec: data_pond.DataPondSpec,
        *,
        root: str,
        deleted: bool = False,
    ) -> None:
        """Handle a new or changed DataPond, whose data is in `root` on each node.

        `deleted`: whether it is being deleted.
        """
        self._known.add((namespace, name))
        found = self._pond(namespace, name)
        before = found.revision
        found.deleted = deleted
        found.set_spec(spec, root)
        self._wake(found, before)

    def pond_gone(self, namespace: str, name: str) -> None:
        self._known.discard((namespace, name))
        self._ponds.pop((namespace, name), None)
        self._notify((namespace, name))

    def remove(self, namespace: str, name: str) -> None:
        """Order the agents of a pond to remove all data from their nodes. Repeatable."""
        found = self._pond(namespace, name)
        before = found.revision
        found.remove()
        self._wake(found, before)

    def note_silence(self, namespace: str, name: str) -> float | None:
        """Notify subscribers of agents that have stopped reporting; return the seconds until the
        next check, or None if no agent reports.
        """
        found = self._pond(namespace, name)
        before = found.revision
        again_s = found.note_silence()
        self._wake(found, before)
        return again_s

    def explain(self, namespace: str, name: str, obstacle: str) -> None:
        """Set the reason why agents of a pond do not report; "" if they do."""
        found = self._pond(namespace, name)
        if found.obstacle != obstacle:
            found.obstacle = obstacle
            self._notify((namespace, name), agents=False)

    def node_gone(self, namespace: str, name: str, node: str) -> None:
        """Record that a node has no agent any more."""
        found = self._pond(namespace, name)
        before = found.revision
        found.forget_node(node)
        self._wake(found, before)

    def state(self, namespace: str, name: str) -> pond_state.PondState | None:
        """Return the state of one pond, which the caller must not change."""
        return self._ponds.get((namespace, name)) if (namespace, name) in self._known else None

    # For users.

    def node_views(self, namespace: str, name: str) -> list[pond_views.NodeView] | None:
        """Return views of all nodes of a pond, or None if there is no such DataPond."""
        found = self.state(namespace, name)
        return None if found is None else rest_views.nodes(found)

    def lease_views(self, namespace: str, name: str) -> list[pond_views.LeaseView] | None:
        """Return views of all leases of a pond, or None if there is no such DataPond."""
        found = self.state(namespace, name)
        return None if found is None else rest_views.leases(found)

    def ask(
        self, namespace: str, pond: str, lease: str, request: pond_views.LeaseRequest
    ) -> pond_views.LeaseView | None:
        """Advance the lease of a user by one step: pin its snapshots, then have the nodes fetch
        them.

        Repeat the call until the lease is ready or has failed. A failure is reported once; the next
        call starts again. Returns None if there is no such DataPond; raises LeaseRefused.
        """
        found = self.state(namespace, pond)
        if found is None:
            return None
        if found.deleted:
            raise errors.LeaseRefused(f"DataPond {pond} is being deleted: name another one")
        pins = {one.name: self._asked_pin(namespace, pond, lease, one) for one in request.snapshots}
        name = f"{pond_views.LEASE_PREFIX}{lease}"
        if all(pin.state == model.PINNED for pin in pins.values()):
            self.want(
                namespace,
                pond,
                name,
                nodes=request.nodes,
                snapshots=[
                    model.WantedSnapshot(
                        name=one.name,
                        digest=pins[one.name].digest,
                        paths=one.paths,
                        access=one.access,
                        source=one.from_,
                    )
                    for one in request.snapshots
                ],
            )
        for one in request.snapshots:
            if pins[one.name].state == model.FAILED and one.from_ is not None:
                self.forget_pin(namespace, pond, _request(lease, one))
        return rest_views.lease(self._pond(namespace, pond), name, pins)

    def _asked_pin(
        self, namespace: str, pond: str, lease: str, one: pond_views.LeaseSnapshot
    ) -> model.Pin:
        if one.from_ is None:
            if one.digest is None:
                raise errors.LeaseRefused(f"snapshot {one.name}: give from or digest")
            known = self.find_manifest(namespace, pond, one.digest)
            if known is None and not self.holders(namespace, pond, one.digest):
                raise errors.LeaseRefused(
                    f"snapshot {one.name}: no node has {one.digest}: say where it is `from`"
                )
            return model.Pin(
                state=model.PINNED,
                digest=one.digest,
                manifest=known,
                bytes=known.size if known else 0,
            )
        request = _request(lease, one)
        return self.want_pin(namespace, pond, one.from_, request=request, digest=one.digest)

    def take_back(self, namespace: str, pond: str, lease: str) -> bool | None:
        """Release a user's lease, and forget its pins. Returns False if there is no such lease,
        None if there is no such DataPond.
        """
        found = self.state(namespace, pond)
        if found is None:
            return None
        name = f"{pond_views.LEASE_PREFIX}{lease}"
        asked = [pin for pin in found.pins if pin.startswith(f"{name}/")]
        for request in asked:
            self.forget_pin(namespace, pond, request)
        if name not in found.leases:
            return bool(asked)
        self.release(namespace, pond, name)
        return True

    async def changed(self, *, within_s: float) -> None:
        """Wait until the ledger changes, but at most `within_s`."""
        event = asyncio.Event()
        self._subscribers.append(event.set)
        try:
            async with asyncio.timeout(within_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._subscribers.remove(event.set)

    # For the agents.

    def take_report(
        self, namespace: str, pond: str, node: str, report: pond_messages.Report
    ) -> None:
        """Process the report of an agent."""
        found = self._pond(namespace, pond)
        before = found.revision
        news = found.take_report(node, report)
        if found.revision != before or news:
            self._notify((namespace, pond), agents=found.revision != before)

    async def order(
        self, namespace: str, pond: str, node: str, *, knows: int, wait_s: float
    ) -> pond_messages.NodeOrder:
        """Wait until the order for a node has another revision than the agent knows, but at most
        `wait_s`; return the order.
        """
        key = (namespace, pond)
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            async with asyncio.timeout(wait_s):
                while self._pond(*key).revision == knows and not self._closed:
                    event.clear()
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[key].discard(event)
        found = self._pond(*key)
        before = found.revision
        made = found.order(node)
        self._wake(found, before)
        return made

    def close(self) -> None:
        """End all waits of callers, because the manager stops."""
        self._closed = True
        for key in tuple(self._ponds):
            self._notify(key)

    def put_manifest(self, namespace: str, pond: str, made: manifest.Manifest) -> None:
        """Store a manifest uploaded by an agent."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.put_manifest(made)
        self._wake(found, before)

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None:
        return self._pond(namespace, pond).manifests.get(digest)

    # Internal.

    def _pond(self, namespace: str, name: str) -> pond_state.PondState:
        found = self._ponds.get((namespace, name))
        if found is None:
            found = pond_state.PondState(namespace, name, time=self._clock)
            self._ponds[namespace, name] = found
        return found

    def _wake(self, pond: pond_state.PondState, before: int) -> None:
        if pond.revision != before:
            self._notify((pond.namespace, pond.name))

    def _notify(self, key: Key, *, agents: bool = True) -> None:
        if agents:
            for event in self._waiting.get(key, ()):
                event.set()
        for callback in tuple(self._subscribers):
            callback()


def _request(lease: str, one: pond_views.LeaseSnapshot) -> str:
    """Return the request name of the pin for a snapshot of a user's lease; a different source gives
    a different name.
    """
    source = hashlib.sha256(msgspec.json.encode([one.from_, one.digest])).hexdigest()[:16]
    return f"{pond_views.LEASE_PREFIX}{lease}/{one.name}/{source}"


def _no_pond(namespace: str, pond: str) -> str:
    return f"there is no DataPond {pond} in namespace {namespace}: create it"
