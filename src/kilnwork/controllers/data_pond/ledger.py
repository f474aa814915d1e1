"""The ledger of all ponds: which snapshots are wanted on which nodes, and where they are.

Used within the manager by whoever needs data next to work, and by `server`, which brings the
agents' reports and hands out their orders. Its methods answer at once with what is known;
`subscribe` tells when that has changed. It keeps nothing on disk: after a restart users want anew
what they need, agents report what they have, and nothing is let go in between.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from kilnwork.api import data_pond, pond_messages, pond_views
from kilnwork.controllers.data_pond import model, pond_state, views
from kilnwork.data import errors
from kilnwork.data.pond import leases as pond_leases
from kilnwork.data.pond import manifest
from kilnwork.kit import clock

Key = tuple[str, str]
"""Namespace and name of a DataPond."""


class Ledger:
    """See the module. For one event loop. `Pin`, `WantedSnapshot` and `Readiness` are in
    `model`."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._ponds: dict[Key, pond_state.PondState] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._known: set[Key] = set()
        self._closed = False

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call it, from the loop, whenever something is another one than before."""
        self._subscribers.append(callback)

    # for whoever needs data

    def want_pin(
        self,
        namespace: str,
        pond: str,
        source: data_pond.SnapshotSource,
        *,
        request: str,
        digest: str | None = None,
    ) -> model.Pin:
        """Return how far a source is on its way to be a snapshot; ask again when told of a change.

        The same `request` gives the same pin, whatever the source has meanwhile; another one looks
        at the source anew. `digest`: it must be that snapshot, from wherever it can be had.
        """
        if (namespace, pond) not in self._known:
            return model.Pin(reason="WaitingForPond", message=_no_pond(namespace, pond))
        found = self._pond(namespace, pond)
        before = found.revision
        pin = found.want_pin(request, source, digest=digest)
        self._wake(found, before)
        return pin

    def forget_pin(self, namespace: str, pond: str, request: str) -> None:
        """The digest is noted elsewhere; repeatable."""
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
        """Return how far the files that attempts of a run have written are on their way to be one
        snapshot; ask again when told of a change.

        `attempts`: by node, names of directories below `outputs_directory(lease)`, `glob`: which of
        their files. Its nodes hold it once a lease wants it there: `paths_by_node`.
        """
        if (namespace, pond) not in self._known:
            return model.Pin(reason="WaitingForPond", message=_no_pond(namespace, pond))
        found = self._pond(namespace, pond)
        before = found.revision
        pin = found.want_output(request, lease=lease, attempts=attempts, glob=glob)
        self._wake(found, before)
        return pin

    def forget_output(self, namespace: str, pond: str, request: str) -> None:
        """The digest is noted elsewhere; repeatable."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.forget_output(request)
        self._wake(found, before)

    def outputs_directory(self, namespace: str, pond: str, lease: str) -> str:
        """Where tasks of a run write on every node; below it, each attempt in a directory of its
        own."""
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
        """Have these snapshots on these nodes, on all of the pond for None, until the release.

        `output_merge`: and a directory for what tasks of the run write.

        Said again with other nodes or snapshots, that counts. Raises LeaseRefused for names that
        cannot be.
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
        """Let go; repeatable. Of another namespace's lease nothing is known here."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.release(lease)
        self._wake(found, before)

    def ready(self, namespace: str, pond: str, lease: str) -> dict[str, model.Readiness]:
        """How far each node is; no nodes while nobody wants it."""
        return self._pond(namespace, pond).ready(lease)

    def holders(self, namespace: str, pond: str, digest: str) -> dict[str, int]:
        """Bytes of a snapshot by node, of those that report and have any of it."""
        return self._pond(namespace, pond).holders(digest)

    def nodes(self, namespace: str, pond: str) -> frozenset[str]:
        """Nodes whose agents report."""
        return self._pond(namespace, pond).live()

    def obstacle(self, namespace: str, pond: str) -> str:
        """Why its agents do not report, as the condition `Ready` of the DataPond says; "" when
        they do."""
        return self._pond(namespace, pond).obstacle

    def leases(self, namespace: str) -> frozenset[tuple[str, str]]:
        """Pond and lease of all that are wanted, or that an agent has and nobody has released."""
        return frozenset(
            (pond.name, lease)
            for pond in self._ponds.values()
            if pond.namespace == namespace
            for lease in pond.leases
        )

    def directory(self, namespace: str, pond: str, lease: str) -> str | None:
        """Where a run finds its snapshots on every node; None while there is no such pond."""
        root = self._pond(namespace, pond).root
        return f"{root}/runs/{namespace}/{lease}" if root else None

    # for the controller of DataPonds

    def pond_changed(
        self,
        namespace: str,
        name: str,
        spec: data_pond.DataPondSpec,
        *,
        root: str,
        deleted: bool = False,
    ) -> None:
        """There is such a DataPond; its data is in `root` on each node. `deleted`: not for long."""
        self._known.add((namespace, name))
        found = self._pond(namespace, name)
        before = found.revision
        found.deleted = deleted
        found.set_spec(spec, root)
        self._wake(found, before)

    def pond_gone(self, namespace: str, name: str) -> None:
        self._known.discard((namespace, name))
        self._ponds.pop((namespace, name), None)
        self._tell((namespace, name))

    def remove(self, namespace: str, name: str) -> None:
        """Have the agents of a pond remove all that is on their nodes; repeatable."""
        found = self._pond(namespace, name)
        before = found.revision
        found.remove()
        self._wake(found, before)

    def note_silence(self, namespace: str, name: str) -> float | None:
        """Tell everybody of agents that report no more; returns when to look again, in seconds."""
        found = self._pond(namespace, name)
        before = found.revision
        again_s = found.note_silence()
        self._wake(found, before)
        return again_s

    def explain(self, namespace: str, name: str, obstacle: str) -> None:
        """Say why agents of a pond do not report, "" when they do."""
        found = self._pond(namespace, name)
        if found.obstacle != obstacle:
            found.obstacle = obstacle
            self._tell((namespace, name), agents=False)

    def node_gone(self, namespace: str, name: str, node: str) -> None:
        """That node has no agent any more."""
        found = self._pond(namespace, name)
        before = found.revision
        found.forget_node(node)
        self._wake(found, before)

    def state(self, namespace: str, name: str) -> pond_state.PondState | None:
        """All that is known of one pond; to be read only."""
        return self._ponds.get((namespace, name)) if (namespace, name) in self._known else None

    # for people

    def node_views(self, namespace: str, name: str) -> list[pond_views.NodeView] | None:
        """Each node of a pond; None if there is no such DataPond."""
        found = self.state(namespace, name)
        return None if found is None else views.nodes(found)

    def lease_views(self, namespace: str, name: str) -> list[pond_views.LeaseView] | None:
        """Each lease of a pond; None if there is no such DataPond."""
        found = self.state(namespace, name)
        return None if found is None else views.leases(found)

    def ask(
        self, namespace: str, pond: str, lease: str, request: pond_views.LeaseRequest
    ) -> pond_views.LeaseView | None:
        """Go on with what somebody wants: pin what is not, then have it on the nodes.

        To be repeated until it is ready, or has failed, which is said once: then it begins anew.
        None if there is no such DataPond; raises LeaseRefused.
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
        return views.lease(self._pond(namespace, pond), name, pins)

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
        """Release a lease of people; False if there is none, None if there is no such DataPond."""
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
        """Return when something is another one than now, or after that time."""
        event = asyncio.Event()
        self._subscribers.append(event.set)
        try:
            async with asyncio.timeout(within_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._subscribers.remove(event.set)

    # for the agents

    def take_report(
        self, namespace: str, pond: str, node: str, report: pond_messages.Report
    ) -> None:
        """An agent says what it has and does."""
        found = self._pond(namespace, pond)
        before = found.revision
        news = found.take_report(node, report)
        if found.revision != before or news:
            self._tell((namespace, pond), agents=found.revision != before)

    async def order(
        self, namespace: str, pond: str, node: str, *, knows: int, wait_s: float
    ) -> pond_messages.NodeOrder:
        """What is wanted of a node: as soon as that is another revision than the agent knows."""
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
        """Let nobody wait any longer: the manager stops."""
        self._closed = True
        for key in tuple(self._ponds):
            self._tell(key)

    def put_manifest(self, namespace: str, pond: str, made: manifest.Manifest) -> None:
        """An agent has made it, or was asked for it."""
        found = self._pond(namespace, pond)
        before = found.revision
        found.put_manifest(made)
        self._wake(found, before)

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None:
        return self._pond(namespace, pond).manifests.get(digest)

    # within

    def _pond(self, namespace: str, name: str) -> pond_state.PondState:
        found = self._ponds.get((namespace, name))
        if found is None:
            found = pond_state.PondState(namespace, name, time=self._clock)
            self._ponds[namespace, name] = found
        return found

    def _wake(self, pond: pond_state.PondState, before: int) -> None:
        if pond.revision != before:
            self._tell((pond.namespace, pond.name))

    def _tell(self, key: Key, *, agents: bool = True) -> None:
        if agents:
            for event in self._waiting.get(key, ()):
                event.set()
        for callback in tuple(self._subscribers):
            callback()


def _request(lease: str, one: pond_views.LeaseSnapshot) -> str:
    """Identity of the pin of a lease of people: another source is another one."""
    source = hashlib.sha256(msgspec.json.encode([one.from_, one.digest])).hexdigest()[:16]
    return f"{pond_views.LEASE_PREFIX}{lease}/{one.name}/{source}"


def _no_pond(namespace: str, pond: str) -> str:
    return f"there is no DataPond {pond} in namespace {namespace}: create it"
