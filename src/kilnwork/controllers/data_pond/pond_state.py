"""The state of one pond in the manager's memory: what its nodes should hold, and what they report.

Used by `ledger`, one for each DataPond, and read by `deletion_decision`, `status` and `rest_views`.
Nothing is stored: users request again what they need, and agents report what they have. No I/O, no
waiting; the clock is passed in.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from urllib import parse

import msgspec

from kilnwork.api import data_pond, pond_messages, pond_views, quantities
from kilnwork.controllers.data_pond import model, output_merge, source_resolution
from kilnwork.data import errors
from kilnwork.data.pond import manifest
from kilnwork.kit import clock

MAX_RELEASED = 10_000
"""Maximum number of released leases that are remembered, for nodes that did not report
meanwhile."""


class AgentState(msgspec.Struct, kw_only=True):
    """The state of a node, as its agent has reported it."""

    report: pond_messages.Report
    seen: float
    """Time of the last report, monotonic seconds."""
    since: float
    """Time of the first report of this agent, wall clock."""

    @property
    def held(self) -> dict[str, int]:
        """The bytes that the node holds of each snapshot, by digest."""
        return {one.digest: one.bytes_here for one in self.report.holdings if one.files_here}


class _Pinning(msgspec.Struct, kw_only=True):
    """A pin in progress, and the node to which it is assigned."""

    source: pond_messages.SourceOrder | None
    expected: str
    """The required digest; "" for any digest."""
    node: str | None = None
    bound: bool = False
    """Whether only this node has the source."""
    pin: model.Pin = model.Pin()


class PondState:
    """The state of one pond in memory. `revision` increases with each change of what agents are
    ordered to do.
    """

    def __init__(self, namespace: str, name: str, *, time: clock.Clock) -> None:
        self.namespace = namespace
        self.name = name
        self.spec = data_pond.DataPondSpec()
        self.root = ""
        self.revision = int(time.wall() * 1000)
        """Incremented with each change; differs from all revisions of earlier managers."""
        self.agents: dict[str, AgentState] = {}
        self.manifests: dict[str, manifest.Manifest] = {}
        self.deleted = False
        """Whether the DataPond is being deleted: no new pin is started."""
        self.removing_since: float | None = None
        """When agents were ordered to remove all data, wall clock."""
        self.obstacle = ""
        """Why agents do not report, as in the condition `Ready`; "" if they do."""
        self._live: frozenset[str] = frozenset()
        self._clock = time
        self._pins: dict[str, _Pinning] = {}
        self._leases: dict[str, tuple[frozenset[str] | None, tuple[model.WantedSnapshot, ...]]] = {}
        self._written: set[str] = set()
        """Leases whose runs write outputs."""
        self._released: dict[str, None] = {}

    # What is wanted.

    def set_spec(self, spec: data_pond.DataPondSpec, root: str) -> None:
        if (spec, root) != (self.spec, self.root):
            self.spec, self.root = spec, root
            self.revision += 1

    def remove(self) -> None:
        """Order the agents to remove all data from their nodes. Repeatable."""
        if self.removing_since is None:
            self.removing_since = self._clock.wall()
            self.revision += 1

    def note_silence(self) -> float | None:
        """Record which agents have stopped reporting; return in how many seconds the next agent may
        count as silent.

        None if no agent reports.
        """
        live = self.live()
        if live != self._live:
            self._live = live
            self.revision += 1
        if not live:
            return None
        oldest = min(self.agents[node].seen for node in live)
        return max(0.0, oldest + pond_messages.SILENT_S - self._clock.monotonic())

    def want_pin(
        self, request: str, source: data_pond.SnapshotSource, *, digest: str | None
    ) -> model.Pin:
        found = self._pins.get(request)
        if found is None and self.deleted:
            text = f"DataPond {self.namespace}/{self.name} is being deleted: name another one"
            return model.Pin(reason="WaitingForPond", message=text)
        if found is None:
            found = self._pins[request] = self._new_pin(source, digest or "")
            self.revision += 1
        self._update_pin(found)
        return found.pin

    def want_output(
        self, request: str, *, lease: str, attempts: Mapping[str, tuple[str, ...]], glob: str
    ) -> model.Pin:
        """Order each node to pin its part of an output; return the pin of the merged output.

        The manifest of the merged output is created here. `attempts`: directories in the output
        directory of the lease, by node.
        """
        live, parts = self.live(), {}
        for node in sorted(attempts):
            if node not in live:
                message = f"the agent of DataPond {self.namespace}/{self.name} does not report"
                parts[node] = model.Pin(reason="AgentSilent", message=message)
        for node, names in self._by_owner(attempts, live).items():
            key = f"{request}@{node}"
            if key not in self._pins:
                self._pins[key] = self._output_pin(node, lease, names, glob)
                self.revision += 1
            self._update_pin(self._pins[key])
            parts[node] = self._pins[key].pin
        whole = output_merge.merge(parts)
        if whole.manifest is not None and whole.digest not in self.manifests:
            self.put_manifest(whole.manifest)
        return whole

    def _by_owner(
        self, attempts: Mapping[str, tuple[str, ...]], live: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the attempts grouped by the node whose agent serves the disk, since nodes may
        share a disk.
        """
        found: dict[str, tuple[str, ...]] = {}
        for node in sorted(set(attempts) & set(live)):
            owner = self.owner(node, live)
            found[owner] = (*found.get(owner, ()), *attempts[node])
        return found

    def _output_pin(self, node: str, lease: str, names: tuple[str, ...], glob: str) -> _Pinning:
        directory = self.outputs_directory(lease)
        ordered = pond_messages.SourceOrder(
            name=lease, uri=f"file://{parse.quote(directory)}", glob=glob, attempts=names
        )
        return _Pinning(source=ordered, expected="", node=node, bound=True)

    def outputs_directory(self, lease: str) -> str:
        """Return the directory in which the tasks of a run write their outputs, the same on every
        node.
        """
        return f"{self.root}/outputs/{self.namespace}/{lease}"

    def forget_output(self, request: str) -> None:
        for key in [one for one in self._pins if one.startswith(f"{request}@")]:
            self.forget_pin(key)

    def _new_pin(self, source: data_pond.SnapshotSource, digest: str) -> _Pinning:
        if source.output is not None and digest:
            return _Pinning(source=None, expected=digest)  # nodes of this pond have it
        try:
            ordered = source_resolution.order(self.spec, source)
        except errors.PondError as error:
            failed = model.Pin(state=model.FAILED, reason=error.reason, message=str(error))
            return _Pinning(source=None, expected=digest, pin=failed)
        return _Pinning(source=ordered, expected=digest)

    def forget_pin(self, request: str) -> None:
        if self._pins.pop(request, None) is not None:
            self.revision += 1
            self._drop_manifests()

    def want(
        self,
        lease: str,
        *,
        nodes: Collection[str] | None,
        snapshots: Sequence[model.WantedSnapshot],
        outputs: bool = False,
    ) -> None:
        wanted = (None if nodes is None else frozenset(nodes), tuple(snapshots))
        if self._leases.get(lease) != wanted or outputs != (lease in self._written):
            self._leases[lease] = wanted
            (self._written.add if outputs else self._written.discard)(lease)
            self._released.pop(lease, None)
            self.revision += 1

    def release(self, lease: str) -> None:
        self._leases.pop(lease, None)
        self._written.discard(lease)
        if lease not in self._released:
            self._released[lease] = None
            while len(self._released) > MAX_RELEASED:
                self._released.pop(next(iter(self._released)))
            self.revision += 1
            self._drop_manifests()

    @property
    def pins(self) -> tuple[str, ...]:
        """The requests of all pins."""
        return tuple(self._pins)

    @property
    def leases(self) -> frozenset[str]:
        """The names of all leases: those that were requested, and those that agents report and that
        were not released.
        """
        reported = {one.name for agent in self.agents.values() for one in agent.report.leases}
        return frozenset(self._leases) | (reported - self._released.keys())

    @property
    def leases_of_sets(self) -> frozenset[str]:
        """The leases of SyncSets: all leases that no user created through the REST API."""
        return frozenset(one for one in self.leases if not one.startswith(pond_views.LEASE_PREFIX))

    def lease_counts(self) -> dict[str, int]:
        """Return the number of leases that need each snapshot."""
        found: dict[str, int] = {}
        for _, snapshots in self._leases.values():
            for digest in {one.digest for one in snapshots}:
                found[digest] = found.get(digest, 0) + 1
        return found

    # What nodes have.

    def full_nodes(self) -> list[tuple[str, str]]:
        """Return the live nodes that lack space for their snapshots, with their messages."""
        found = []
        for node in sorted(self.live()):
            report = self.agents[node].report
            troubles = [one.trouble for lease in report.leases for one in lease.snapshots]
            troubles += [one.trouble for one in report.pins]
            full = [t for t in troubles if t is not None and t.reason == errors.PondFull.reason]
            found += [(node, one.message) for one in full[:1]]
        return found

    def take_report(self, node: str, report: pond_messages.Report) -> bool:
        """Process a report of an agent unless a newer one is known; return whether anything has
        changed.
        """
        before = self.agents.get(node)
        if before is not None and before.report.session == report.session:
            if report.sequence <= before.report.sequence:
                return False
            since = before.since
        else:
            since = self._clock.wall()
        now = AgentState(report=report, seen=self._clock.monotonic(), since=since)
        self.agents[node] = now
        if before is None or _shared_facts(before) != _shared_facts(now):
            self.revision += 1
        for pinning in self._pins.values():
            self._update_pin(pinning)
        return before is None or _comparable(before.report) != _comparable(report)

    def forget_node(self, node: str) -> None:
        if self.agents.pop(node, None) is not None:
            self.revision += 1

    def put_manifest(self, made: manifest.Manifest) -> None:
        self.manifests[made.digest] = made
        self.revision += 1
        for pinning in self._pins.values():
            self._update_pin(pinning)

    def live(self) -> frozenset[str]:
        """Return the nodes whose agents currently report."""
        now = self._clock.monotonic()
        return frozenset(
            node for node, agent in self.agents.items() if now - agent.seen < pond_messages.SILENT_S
        )

    def owner(self, node: str, live: Collection[str]) -> str:
        """Return the node whose agent serves `node`. It is `node` itself, unless several nodes
        share a disk.
        """
        agent = self.agents.get(node)
        if agent is None or not agent.report.shares:
            return node
        for other in sorted(live):
            report = self.agents[other].report
            if report.store == agent.report.store and not report.shares:
                return other
        return node

    def _served_by(self, node: str) -> frozenset[str]:
        """Return the nodes that the agent on `node` serves."""
        live = self.live()
        return frozenset({node, *(one for one in live if self.owner(one, live) == node)})

    def holders(self, digest: str) -> dict[str, int]:
        """Return how many bytes of a snapshot each live node holds, without nodes that hold
        none.
        """
        live = self.live()
        found = {
            node: self.agents[self.owner(node, live)].held.get(digest) for node in sorted(live)
        }
        return {node: count for node, count in found.items() if count is not None}

    def ready(self, lease: str) -> dict[str, model.Readiness]:
        wanted = self._leases.get(lease)
        if wanted is None:
            return {}
        nodes, snapshots = wanted
        live = self.live()
        among = sorted(live if nodes is None else nodes)
        return {node: self._readiness(node, lease, snapshots, live=live) for node in among}

    def _readiness(
        self,
        node: str,
        lease: str,
        snapshots: Sequence[model.WantedSnapshot],
        *,
        live: Collection[str],
    ) -> model.Readiness:
        owner = self.owner(node, live)
        served = self._needing(lease, self._served_by(owner))
        total = sum(self._bytes(one, node) for one in snapshots)
        agent = self.agents.get(owner)
        if agent is None or node not in live:
            text = "has never reported" if agent is None else "does not report any more"
            prefix = f"{self.namespace}/{self.name}"
            return model.Readiness(
                bytes_total=total,
                reason="AgentSilent",
                message=f"the agent of DataPond {prefix} on node {node} {text}",
            )
        found = next((one for one in agent.report.leases if one.name == lease), None)
        if found is None and not snapshots:
            message = f"node {node} has not made the directory of its outputs yet"
            return model.Readiness(reason="Fetching", message=message)
        reports = {one.name: one for one in found.snapshots} if found is not None else {}
        pairs = [(one, _matching_report(one, reports, served)) for one in snapshots]
        return _sum_readiness(node, pairs, total=total)

    def _needing(self, lease: str, served: frozenset[str]) -> frozenset[str]:
        """Return those nodes of `served`, which one agent serves, that need the data of a lease."""
        nodes, _ = self._leases[lease]
        return served if nodes is None else served & nodes

    def _bytes(self, wanted: model.WantedSnapshot, node: str) -> int:
        known = self.manifests.get(wanted.digest)
        if known is None:
            return 0
        needed = wanted.paths_on((node,))
        if needed is None:
            return known.size
        paths = set(needed)
        return sum(f.size for f in known.files if f.path in paths)

    # Orders.

    def order(self, node: str) -> pond_messages.NodeOrder:
        """Return the current order for the agent of a node, with everything that the node should
        hold.
        """
        self.note_silence()
        if self.removing_since is not None:
            return pond_messages.NodeOrder(revision=self.revision, remove=True)
        live, served = self.live(), self._served_by(node)
        for pinning in self._pins.values():
            self._assign(pinning, live)
        leases = tuple(
            pond_messages.LeaseOrder(
                name=name,
                snapshots=tuple(self._ordered(one, needing) for one in snapshots),
                outputs=name in self._written,
            )
            for name, (_, snapshots) in sorted(self._leases.items())
            if (needing := self._needing(name, served))
        )
        wanted = {one.digest for lease in leases for one in lease.snapshots}
        holders = {digest: tuple(self._peers_with(digest, node)) for digest in sorted(wanted)}
        peers = {one for nodes in holders.values() for one in nodes}
        return pond_messages.NodeOrder(
            revision=self.revision,
            limits=self._limits(),
            pins=tuple(
                pond_messages.PinOrder(id=request, source=one.source)
                for request, one in sorted(self._pins.items())
                if one.node == node and one.source is not None and one.pin.state == model.PENDING
            ),
            leases=leases,
            released=self._released_on(node, {one.name for one in leases}),
            peers={one: self.agents[one].report.address for one in sorted(peers)},
            holders={digest: nodes for digest, nodes in holders.items() if nodes},
            uploads=self._uploads(node, wanted),
        )

    def _ordered(
        self, wanted: model.WantedSnapshot, needing: frozenset[str]
    ) -> pond_messages.SnapshotOrder:
        try:
            source = (
                None if wanted.source is None else source_resolution.order(self.spec, wanted.source)
            )
        except errors.PondError:
            source = None  # pinned under an earlier spec: peers may have it
        return pond_messages.SnapshotOrder(
            name=wanted.name,
            digest=wanted.digest,
            paths=wanted.paths_on(needing),
            access=wanted.access,
            source=source,
        )

    def _released_on(self, node: str, wanted: Collection[str]) -> tuple[str, ...]:
        agent = self.agents.get(node)
        held = {one.name for one in agent.report.leases} if agent is not None else set()
        released = held & (self._released.keys() | self._leases.keys())
        return tuple(sorted(released - set(wanted)))

    def _peers_with(self, digest: str, node: str) -> list[str]:
        """Return the peers from which a node can fetch a snapshot, those that hold most of it
        first.

        Among equal peers, each node gets a different one first.
        """
        if not self.spec.fetch.from_peers:
            return []
        held = self.holders(digest)
        able = [one for one in held if one != node and self._is_peer(one)]
        return sorted(able, key=lambda one: (-held[one], zlib.crc32(f"{node} {one}".encode())))

    def _is_peer(self, node: str) -> bool:
        report = self.agents[node].report
        return bool(report.address) and not report.shares

    def _uploads(self, node: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Return the digests of manifests that a node should upload: it has them, and the manager
        needs and lacks them.
        """
        expected = {one.expected for one in self._pins.values() if one.expected}
        everywhere = {one.digest for _, snapshots in self._leases.values() for one in snapshots}
        agent = self.agents.get(node)
        pinned = {one.digest for one in agent.report.pins if one.digest} if agent else set()
        lacking = (set(wanted) | expected | everywhere | pinned) - self.manifests.keys()
        held = {one.digest for one in agent.report.holdings} if agent is not None else set()
        return tuple(sorted(lacking & held))

    def _limits(self) -> pond_messages.LimitsOrder:
        spec = self.spec
        return pond_messages.LimitsOrder(
            capacity=None if spec.capacity is None else int(quantities.parse(spec.capacity)),
            high=spec.high_watermark,
            low=spec.low_watermark,
            parallel=spec.fetch.parallel,
            scrub=int(quantities.parse(spec.scrub_rate)),
        )

    # pins

    def _assign(self, pinning: _Pinning, live: frozenset[str]) -> None:
        """Assign a pin to a node: preferably to a node that has pinned the same source before and
        need not read it again, otherwise to the node with the fewest pins in progress.
        """
        if pinning.bound:
            return
        able = [one for one in live if not self.agents[one].report.shares]
        if pinning.node in able or pinning.source is None:
            return
        busy = [one.node for one in self._pins.values() if one.pin.state == model.PENDING]
        key = pond_messages.source_key(pinning.source)
        was = pinning.node
        pinning.node = min(
            able,
            key=lambda one: (key not in self.agents[one].report.sources, busy.count(one), one),
            default=None,
        )
        if was is not None and pinning.node != was:
            self.revision += 1  # so that the new node sees that the order has changed

    def _update_pin(self, pinning: _Pinning) -> None:
        """Update a pin from the reports of agents; a finished pin does not change."""
        if pinning.pin.state != model.PENDING:
            return
        if (known := self.manifests.get(pinning.expected)) is not None:
            pinning.pin = _pinned_pin(known)
            return
        report = self._said_of(pinning)
        if report is None:
            pinning.pin = model.Pin(reason="WaitingForAgent", message=self._waits_for(pinning))
        elif report.digest:
            pinning.pin = self._resolved(pinning, report.digest)
        elif report.trouble is not None:
            pinning.pin = model.Pin(
                state=model.FAILED if report.trouble.lasting else model.PENDING,
                bytes=report.bytes_done,
                reason=report.trouble.reason,
                message=f"node {pinning.node}: {report.trouble.message}",
            )
        else:
            message = f"node {pinning.node} reads it"
            pinning.pin = model.Pin(bytes=report.bytes_done, reason="Pinning", message=message)

    def _said_of(self, pinning: _Pinning) -> pond_messages.PinReport | None:
        agent = self.agents.get(pinning.node or "")
        request = next(key for key, one in self._pins.items() if one is pinning) if agent else ""
        reports = agent.report.pins if agent is not None else ()
        return next((one for one in reports if one.id == request), None)

    def _resolved(self, pinning: _Pinning, digest: str) -> model.Pin:
        if pinning.expected and digest != pinning.expected:
            return model.Pin(
                state=model.FAILED,
                digest=digest,
                reason=errors.SourceChanged.reason,
                message=f"the source has {digest} now, and {pinning.expected} is wanted, which no "
                "node has any more",
            )
        known = self.manifests.get(digest)
        return (
            model.Pin(reason="Pinning", message="its manifest is on its way")
            if (known is None)
            else _pinned_pin(known)
        )

    def _waits_for(self, pinning: _Pinning) -> str:
        if pinning.source is None:
            return f"no node that reports has {pinning.expected}"
        if pinning.node in self.live():
            return f"node {pinning.node} has not begun"
        text = f"DataPond {self.namespace}/{self.name} has no agent that reports"
        return f"{text}: {self.obstacle}" if self.obstacle else text

    def _drop_manifests(self) -> None:
        """Drop the manifests of snapshots that no lease or pin needs any more."""
        wanted = {one.digest for _, snapshots in self._leases.values() for one in snapshots}
        wanted |= {one.pin.digest for one in self._pins.values()}
        self.manifests = {key: one for key, one in self.manifests.items() if key in wanted}


def _pinned_pin(known: manifest.Manifest) -> model.Pin:
    return model.Pin(state=model.PINNED, digest=known.digest, manifest=known, bytes=known.size)


def _matching_report(
    wanted: model.WantedSnapshot,
    reports: Mapping[str, pond_messages.SnapshotReport],
    needing: frozenset[str],
) -> pond_messages.SnapshotReport | None:
    """Return an agent's report about a snapshot, if it describes the snapshot as it is currently
    wanted.
    """
    found = reports.get(wanted.name)
    paths = pond_messages.paths_digest(wanted.paths_on(needing))
    now = (wanted.digest, paths, wanted.access)
    if found is None or (found.digest, found.paths_digest, found.access) != now:
        return None
    return found


def _sum_readiness(
    node: str,
    pairs: Sequence[tuple[model.WantedSnapshot, pond_messages.SnapshotReport | None]],
    *,
    total: int,
) -> model.Readiness:
    found = [report for _, report in pairs if report is not None]
    troubles = [one.trouble for one in found if one.trouble is not None]
    done = sum(one.bytes_done for one in found)
    total = max(total, sum(one.bytes_total for one in found))
    if troubles:
        worst = max(troubles, key=lambda one: one.lasting)
        return model.Readiness(
            bytes_done=done,
            bytes_total=total,
            reason=worst.reason,
            message=f"node {node}: {worst.message}",
            lasting=worst.lasting,
        )
    if len(found) == len(pairs) and all(one.ready for one in found):
        return model.Readiness(ready=True, bytes_done=done, bytes_total=total, reason="Ready")
    waiting = next(w.name for w, report in pairs if report is None or not report.ready)
    message = f"node {node} fetches snapshot {waiting}: {done:,} of {total:,} bytes"
    return model.Readiness(bytes_done=done, bytes_total=total, reason="Fetching", message=message)


def _shared_facts(agent: AgentState) -> tuple[object, ...]:
    """Return the part of an agent's report on which the orders to agents depend."""
    leases = frozenset(one.name for one in agent.report.leases)
    report = agent.report
    address = (report.session, report.address, report.store, report.shares)
    return address, frozenset(agent.held), leases


def _comparable(report: pond_messages.Report) -> pond_messages.Report:
    return msgspec.structs.replace(report, sequence=0, knows=0)
