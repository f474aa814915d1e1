"""The shell of the SyncSet controller: reads the facts about one SyncSet and carries out its plan.

Used by `assembly`. Decides nothing: see `plan` and `status`. Everything may be repeated: the work
of another manager is found by names, owners, the written status, and the engine's runs.
"""

import re
from collections.abc import Collection, Mapping

import msgspec

from kilnwork.api import api_resources, kinds, sync_set, task_cluster
from kilnwork.controllers import ports as hub_ports
from kilnwork.controllers import reconciler_context, status_writer
from kilnwork.controllers.data_pond import model
from kilnwork.controllers.gangs import (
    cluster_manifests,
    data_portions,
    pods_backend,
    port,
    processes_backend,
)
from kilnwork.controllers.sync_set import (
    flow_pond_interfaces,
    objects,
    output_requests,
    output_snapshots,
    plan,
    requirements,
    snapshot_digests,
    status,
    wait_events,
)
from kilnwork.executors import custom_resource
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kube import errors, events, queue

Key = tuple[str, str]

LOCAL_NODE = "kilnwork.dev/local"
"""Label of local nodes, on which Pods are processes."""


_RUN = re.compile(rf"-g[0-9]+({re.escape(output_snapshots.SUFFIX)})?$")
"""The suffix of the names of generations' leases."""


class _KnownState(msgspec.Struct):
    """The state of one SyncSet that is kept in memory between passes."""

    uid: str
    written: float | None = None
    """When the status was last written (monotonic seconds)."""
    differs: float | None = None
    """Since when the status should be different (monotonic seconds)."""
    refused: dict[int, str] = msgspec.field(default_factory=dict)
    """Why the engine does not accept the flow, by generation."""
    fetching: tuple[int, float] | None = None
    """Number of a generation, and since when the nodes fetch its data (wall clock)."""
    written_by: tuple[int, Mapping[str, output_snapshots.WrittenOutput]] | None = None
    """Number of a generation, and where the tasks of its outputs have run, by output."""
    wait: wait_events.Wait | None = None
    """The current wait."""
    leased: data_portions.Places = {}
    """Portions that nodes should hold for the generation that fetches."""
    held: data_portions.Places = {}
    """The portions of `leased` that nodes hold."""
    divided: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of shards requested from the flow, by snapshot; used while no step reads the
    snapshot."""
    planned: requirements.ShardCache = msgspec.field(default_factory=requirements.ShardCache)
    """Shards, until the flow has them."""


class Reconciler:
    """The reconciler of SyncSets; each pass handles one SyncSet. `served`: the kinds of the API
    server.
    """

    def __init__(
        self,
        context: reconciler_context.ReconcilerContext,
        work: queue.WorkQueue,
        *,
        served: custom_resource.Kinds,
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._flows: flow_pond_interfaces.Flows | None = None
        self._ledger: flow_pond_interfaces.PondLedger | None = None
        self._hub: hub_ports.ClusterHub | None = None
        self._local = processes_backend.LocalBackend(context)
        self._pods = pods_backend.PodsBackend(context)
        self._objects = objects.SetObjects(context.kube, served)
        self._writer = status_writer.StatusWriter(
            context.kube, kinds.SYNC_SETS, sync_set.SyncSetStatus
        )
        self._memories: dict[Key, _KnownState] = {}
        self._generations: dict[str, set[int]] = {}
        """Generations of the engine's flows, by uid of their SyncSet."""
        self._definitions: dict[flow_model.FlowKey, flow_model.NewFlowRun] = {}
        """The definitions with which unfinished runs were started."""
        self._names: dict[Key, set[str]] = {}
        """Uids of SyncSets with flows in the engine, by name."""

    # Event handlers: each one only queues the keys that must be reconciled.

    def set_changed(
        self, key: Key, old: sync_set.SyncSet | None, new: sync_set.SyncSet | None
    ) -> None:
        """Handle the creation, change or deletion of a SyncSet."""
        if old is not None and new is not None and self._writer.is_own_write(old, new):
            return
        self._queue.add(key)

    def cluster_changed(
        self,
        key: Key,
        old: task_cluster.TaskCluster | None,
        new: task_cluster.TaskCluster | None,
    ) -> None:
        """Handle the creation, change or deletion of a TaskCluster, whose status shows which
        workers are connected.
        """
        seen = new or old
        owner = None if seen is None else seen.metadata.controller()
        if owner is not None and owner.kind == kinds.SYNC_SETS.kind:
            self._queue.add((key[0], owner.name))

    def pod_changed(self, key: Key, old: object, new: object) -> None:
        """Handle the creation, change or deletion of a worker's Pod."""
        metadata = getattr(new or old, "metadata", None)
        name = "" if metadata is None else metadata.annotations.get(cluster_manifests.SET_LABEL, "")
        if name:
            self._queue.add((key[0], name))

    def ponds_changed(self) -> None:
        """Handle a report of an agent, or the creation, change or deletion of a DataPond."""
        for seen in self._caches.sync_sets.list():
            data = seen.spec.data
            has_data = data.snapshots or data.outputs or seen.status.snapshots
            if has_data and not _is_finished(seen):
                self._queue.add((seen.metadata.namespace, seen.metadata.name))
        for namespace in {one.metadata.name for one in self._caches.namespaces.list()}:
            for _, lease in self._get_ledger().leases(namespace):
                name = _RUN.sub("", lease)
                if name != lease and (namespace, name) not in self._caches.sync_sets:
                    self._queue.add((namespace, name))

    def use(self, hub: hub_ports.ClusterHub, ledger: flow_pond_interfaces.PondLedger) -> None:
        """Set the dispatcher's hub and the ledger of ponds to use."""
        self._local.use(hub)
        self._pods.use(hub)
        self._hub = hub
        self._ledger = ledger
        ledger.subscribe(self.ponds_changed)

    async def follow(self, flows: flow_pond_interfaces.Flows) -> None:
        """Process the changes of runs that the engine of flows publishes, until cancelled."""
        self._flows = flows
        since = 0
        while True:
            since, changed = await flows.changes(since)
            for view in changed:
                key = (view.namespace, view.set_name)
                self._generations.setdefault(view.uid, set()).add(view.generation)
                self._names.setdefault(key, set()).add(view.uid)
                self._queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a SyncSet; return in how many seconds to make the next one, if no
        change comes first.

        This replaces the time that the previous pass returned.
        """
        self._queue.cancel(key)
        await self._forget_strays(key)
        facts = await self._facts(key)
        seen = facts.seen
        if seen is None:
            self._forget(key)
            return None
        decided = plan.decide(facts)
        if decided.gang is not None:
            facts = await self._gather(key, seen, facts, wanted=decided)
            decided = plan.decide(facts)
        await self._act(key, seen, decided)
        if _changes_flow(decided):
            facts = msgspec.structs.replace(
                facts,
                flow=self._view(seen),
                stored_own=decided.start or facts.stored_own,
                refused=self._memory(key, seen).refused.get(seen.status.generation, ""),
            )
            decided = msgspec.structs.replace(
                plan.decide(facts), kill=None, start=None, retry=None, suspend=None
            )
        looks = [decided.again_s]
        if decided.status is not None:
            looks.append(await self._write(key, seen, decided.status))
            looks.append(self._announce_wait(key, seen, decided.status))
        if decided.delete:
            await reconciler_context.delete(self._client, kinds.SYNC_SETS, seen.metadata)
        return min((s for s in looks if s is not None), default=None)

    async def _gather(
        self, key: Key, seen: sync_set.SyncSet, facts: plan.Facts, *, wanted: plan.Plan
    ) -> plan.Facts:
        """Create the objects of the spec and request the gang; return the facts with the state of
        both.
        """
        if wanted.objects:
            obstacle = await self._objects.ensure(seen)
            if obstacle:
                return msgspec.structs.replace(facts, obstacle=obstacle)
        if wanted.gang is None:
            return facts
        gang = await self._backend(facts.backend).ensure(wanted.gang)
        return msgspec.structs.replace(facts, gang=gang)

    # Reading

    async def _facts(self, key: Key) -> plan.Facts:
        found = self._caches.sync_sets.get(key)
        if found is None:
            return plan.Facts(seen=None)
        seen = msgspec.structs.replace(found, status=self._writer.current(found))
        flows, uid = self._engine(), seen.metadata.uid
        final = seen.status.phase and sync_set.Phase(seen.status.phase).final
        current = seen.status.generation == seen.spec.generation
        kept = str(seen.status.generation) if current and not final else None
        owned = self._caches.clusters.owned_by(uid)
        repeated = seen.status.replay_of if current else None
        stored = None
        if repeated is not None:
            stored = self._stored(flow_model.FlowKey(uid, repeated))
        own = flow_model.FlowKey(uid, seen.status.generation)
        view, pond = flows.view(own), self._pond(seen)
        known, readiness = self._memory(key, seen), self._readiness(seen)
        ready = {node: one.ready for node, one in readiness.items()}
        known.held = data_portions.held_portions(known.held, known.leased, ready)
        stored_own = None
        if view is not None and (not final or _is_rerun_requested(seen, view)):
            stored_own = self._stored(own)
        written = await self._written(known, stored_own, view)
        return plan.Facts(
            seen=seen,
            known=tuple(sorted(self._generations.get(uid, ()))),
            flow=view,
            stored_own=stored_own,
            stored=stored,
            backend=await self._choose(seen, current=current),
            pond=pond,
            pins=self._pins(seen, stored) if current and pond is not None and not final else {},
            planned=known.planned,
            readiness=readiness,
            pins_of_outputs=self._pins_of_outputs(seen, stored_own, written),
            unknown_output=output_snapshots.describe_unknown(written),
            kept=self._get_ledger().ready(*_pond(seen), _outputs_lease(seen)) if written else {},
            held=known.held,
            leased=known.leased,
            near=self._bytes_near(seen),
            left=any(
                c.metadata.labels.get(cluster_manifests.GENERATION_LABEL) != kept for c in owned
            ),
            refused_s=wait_events.refusal_duration_s(known.wait, now=self._clock.monotonic()),
            refused=known.refused.get(seen.status.generation, ""),
            fetching_since=None if known.fetching is None else known.fetching[1],
            now=self._clock.wall(),
        )

    def _view(self, seen: sync_set.SyncSet) -> flow_model.FlowRunView | None:
        return self._engine().view(flow_model.FlowKey(seen.metadata.uid, seen.status.generation))

    def _stored(self, key: flow_model.FlowKey) -> flow_model.NewFlowRun | None:
        """Return the definition with which a run was started. It is read only once: only `_reshard`
        changes it.
        """
        found = self._definitions.get(key)
        if found is None:
            found = self._engine().stored(key)
            if found is not None:
                self._definitions[key] = found
        return found

    async def _choose(self, seen: sync_set.SyncSet, *, current: bool) -> sync_set.Backend | None:
        """Return the backend of the gang, or None if the choice depends on the nodes and there are
        none yet.

        `current`: whether the generation has been admitted, and so keeps the backend in its status.
        """
        if current and seen.status.backend_ref is not None:
            return sync_set.Backend(seen.status.backend_ref.backend)
        if seen.spec.backend is not sync_set.Backend.AUTO:
            return seen.spec.backend
        try:
            nodes = await self._client.list(api_resources.NODES, type=dict)
        except errors.Forbidden:
            return sync_set.Backend.PODS
        if not nodes.items:
            return None
        marks = [(n["metadata"].get("labels") or {}).get(LOCAL_NODE) for n in nodes.items]
        return sync_set.Backend.LOCAL if set(marks) == {"true"} else sync_set.Backend.PODS

    def _pond(self, seen: sync_set.SyncSet) -> flow_pond_interfaces.Pond | None:
        namespace, name = _pond(seen)
        data = seen.spec.data
        if not (data.snapshots or data.outputs) and seen.status.replay_of is None:
            return None
        path = self._get_ledger().directory(namespace, name, _lease(seen))
        if self._get_ledger().state(namespace, name) is None or path is None:
            return None
        return flow_pond_interfaces.Pond(
            path=path,
            nodes=self._get_ledger().nodes(namespace, name),
            outputs=self._get_ledger().outputs_directory(namespace, name, _lease(seen)),
        )

    def _pins(
        self, seen: sync_set.SyncSet, stored: flow_model.NewFlowRun | None
    ) -> Mapping[str, model.Pin]:
        if seen.status.replay_of is not None:
            return {}
        return {
            snapshot.name: self._pin(seen, snapshot, stored)
            for snapshot in seen.spec.data.snapshots
        }

    def _pin(
        self,
        seen: sync_set.SyncSet,
        snapshot: sync_set.Snapshot,
        stored: flow_model.NewFlowRun | None,
    ) -> model.Pin:
        namespace, pond = _pond(seen)
        digest = snapshot_digests.wanted_digest(seen, snapshot.name, stored)
        output_ref = snapshot.source.output
        if output_ref is not None and digest is None:
            of = self._caches.sync_sets.get((namespace, output_ref.set))
            found = output_snapshots.find_output(
                of, output_ref, pond=pond, reader=seen.metadata.name
            )
            if isinstance(found, model.Pin):
                return found
            digest = found
        return self._get_ledger().want_pin(
            namespace,
            pond,
            snapshot.source,
            request=_request(seen, snapshot.name),
            digest=digest,
        )

    async def _written(
        self,
        known: _KnownState,
        run: flow_model.NewFlowRun | None,
        view: flow_model.FlowRunView | None,
    ) -> Mapping[str, output_snapshots.WrittenOutput]:
        """Return where the tasks of each output have written it; only from the success of the flow
        until that is in the status.
        """
        if run is None or view is None or view.phase is not flow_model.FlowPhase.SUCCEEDED:
            return {}
        if known.written_by is None or known.written_by[0] != run.generation:
            found = await output_requests.read_written(self._engine(), run)
            known.written_by = run.generation, found
        return known.written_by[1]

    def _pins_of_outputs(
        self,
        seen: sync_set.SyncSet,
        run: flow_model.NewFlowRun | None,
        written: Mapping[str, output_snapshots.WrittenOutput],
    ) -> Mapping[str, model.Pin]:
        if run is None:
            return {}
        namespace, pond = _pond(seen)
        asked = output_requests.OutputRun(
            namespace=namespace, pond=pond, lease=_lease(seen), uid=seen.metadata.uid
        )
        return output_requests.request_pins(self._get_ledger(), asked, run, written=written)

    def _readiness(self, seen: sync_set.SyncSet) -> Mapping[str, model.Readiness]:
        if not (seen.status.snapshots or seen.spec.data.outputs):
            return {}
        namespace, pond = seen.metadata.namespace, seen.spec.data.pond.name
        return self._get_ledger().ready(namespace, pond, _lease(seen))

    def _bytes_near(self, seen: sync_set.SyncSet) -> dict[str, dict[str, int]]:
        """Return how many bytes each node holds of the snapshots that a group names in `near`, by
        group and node.

        Groups without such data are omitted.
        """
        namespace, pond = seen.metadata.namespace, seen.spec.data.pond.name
        found: dict[str, dict[str, int]] = {}
        for group in seen.spec.resources.groups:
            bytes_of: dict[str, int] = {}
            for name in group.near:
                pinned = seen.status.snapshots.get(name)
                if pinned is None:
                    continue
                held = self._get_ledger().holders(namespace, pond, pinned.digest)
                for node, count in held.items():
                    bytes_of[node] = bytes_of.get(node, 0) + count
            if bytes_of:
                found[group.name] = bytes_of
        return found

    def _memory(self, key: Key, seen: sync_set.SyncSet) -> _KnownState:
        known = self._memories.get(key)
        if known is None or known.uid != seen.metadata.uid:
            if known is not None:
                self._writer.forget(known.uid)
            known = self._memories[key] = _KnownState(seen.metadata.uid)
        return known

    def _backend(self, chosen: sync_set.Backend | None) -> port.Backend:
        return self._local if chosen is sync_set.Backend.LOCAL else self._pods

    # Acting

    async def _act(self, key: Key, seen: sync_set.SyncSet, decided: plan.Plan) -> None:
        flows, uid = self._engine(), seen.metadata.uid
        for generation in decided.forget:
            await flows.forget(flow_model.FlowKey(uid, generation))
            self._generations.get(uid, set()).discard(generation)
        if decided.kill is not None:
            end = decided.kill
            own = flow_model.FlowKey(uid, end.generation)
            await flows.kill(own, reason=end.reason, message=end.message)
        if decided.release_groups:
            await self._local.release(seen.metadata.namespace, uid, but=None)
        if _is_finished(seen):
            self._drop_definitions(uid)
        self._lease_data(key, seen, decided)
        if decided.suspend is not None:
            own = flow_model.FlowKey(uid, seen.status.generation)
            await flows.suspend(own, suspended=decided.suspend)
        for cluster, by_node in decided.serve.items():
            await self._workers().set_portions(key[0], cluster, by_node)
        if decided.reshard:
            await self._reshard(key, seen, decided.reshard)
        if decided.retry is not None:
            await flows.retry(flow_model.FlowKey(uid, seen.status.generation), run=decided.retry)
        if decided.start is not None:
            try:
                await flows.start(decided.start)
            except jobs_errors.InvalidJob as error:
                self._memory(key, seen).refused[decided.start.generation] = str(error)
                return
            self._generations.setdefault(uid, set()).add(decided.start.generation)
            self._names.setdefault(key, set()).add(uid)

    async def _reshard(self, key: Key, seen: sync_set.SyncSet, counts: Mapping[str, int]) -> None:
        """Have the engine divide the flow's unread snapshots again, each into its number of shards
        in `counts`. A snapshot that was last divided into that number is left alone.
        """
        known = self._memory(key, seen)
        pond, shards = seen.spec.data.pond.name, {}
        given = {one.name: one.shard for one in seen.spec.data.snapshots}
        for name, count in counts.items():
            shard, digest = given[name], seen.status.snapshots[name].digest
            found = self._get_ledger().find_manifest(key[0], pond, digest)
            if shard is not None and found is not None and known.divided.get(name) != count:
                shards[name] = requirements.shard_documents(seen, shard, found, name=name)
                known.divided[name] = count
        own = flow_model.FlowKey(seen.metadata.uid, seen.status.generation)
        new = await self._engine().reshard(own, shards) if shards else None
        if new is not None:
            self._definitions[own] = new

    def _lease_data(self, key: Key, seen: sync_set.SyncSet, decided: plan.Plan) -> None:
        """Lease the data of the newest generation and its outputs on their nodes, and release
        leases that are not needed any more.
        """
        pond, lease = seen.spec.data.pond.name, _lease(seen)
        known, generation = self._memory(key, seen), seen.status.generation
        if decided.lease is None:
            known.fetching = None
            known.leased = known.held = {}
            known.divided.clear()
        elif known.fetching is None or known.fetching[0] != generation:
            known.fetching = generation, self._clock.wall()
            known.held = {}
        if decided.lease is not None:
            known.leased = decided.lease.portions
            self._get_ledger().want(
                key[0],
                pond,
                lease,
                nodes=decided.lease.nodes,
                snapshots=decided.lease.snapshots,
                outputs=decided.lease.outputs,
            )
        kept = set(output_snapshots.kept_leases(seen))
        if decided.outputs is not None:
            kept.add(_outputs_lease(seen))
            self._get_ledger().want(
                key[0],
                pond,
                _outputs_lease(seen),
                nodes=decided.outputs.nodes,
                snapshots=decided.outputs.snapshots,
            )
        if decided.lease is not None or decided.release_lease:
            held = set() if decided.release_lease else {lease}
            self._release_leases(key, but={(pond, one) for one in kept | held})
        began = decided.start is not None or decided.retry is not None
        if began or decided.release_lease:
            known.planned.forget()
            for snapshot in seen.spec.data.snapshots:
                self._get_ledger().forget_pin(key[0], pond, _request(seen, snapshot.name))
        if decided.release_lease and known.written_by is not None:
            for name in known.written_by[1]:
                request = output_requests.pin_request(seen.metadata.uid, generation, name)
                self._get_ledger().forget_output(key[0], pond, request)
            known.written_by = None

    def _release_leases(self, key: Key, *, but: Collection[tuple[str, str]]) -> None:
        """Release the leases of a SyncSet except `but`, including those of an earlier manager,
        which agents still report.
        """
        for pond, lease in self._get_ledger().leases(key[0]):
            if _RUN.sub("", lease) == key[1] and lease != key[1] and (pond, lease) not in but:
                self._get_ledger().release(key[0], pond, lease)

    def _drop_definitions(self, uid: str) -> None:
        for known in [one for one in self._definitions if one.uid == uid]:
            del self._definitions[known]

    async def _forget_strays(self, key: Key) -> None:
        """End the flows of deleted SyncSets with this name."""
        found = self._caches.sync_sets.get(key)
        there = None if found is None or found.metadata.deletion_timestamp else found.metadata.uid
        for uid in tuple(self._names.get(key, ())):
            if uid == there:
                continue
            self._drop_definitions(uid)
            for generation in sorted(self._generations.pop(uid, ())):
                await self._engine().forget(flow_model.FlowKey(uid, generation))
            self._names[key].discard(uid)

    def _forget(self, key: Key) -> None:
        self._release_leases(key, but=())
        known = self._memories.pop(key, None)
        if known is not None:
            self._writer.forget(known.uid)

    async def _write(
        self, key: Key, seen: sync_set.SyncSet, wanted: sync_set.SyncSetStatus
    ) -> float | None:
        """Write the status of a SyncSet if it is due; return in how many seconds it will be."""
        known, now = self._memory(key, seen), self._clock.monotonic()
        if seen.status == wanted:
            known.differs = None
            return None
        known.differs = now if known.differs is None else known.differs
        wait_s = status.wait_s(
            seen.status, wanted, written=known.written, differs_since=known.differs, now=now
        )
        if wait_s is None or wait_s > 0:
            return wait_s
        try:
            await self._writer.write(seen, wanted)
        except errors.NotFound:
            return None
        known.written, known.differs = now, None
        announced = status.announcement(seen.status, wanted)
        if announced is not None:
            about = events.reference(kinds.SYNC_SETS, seen)
            self._emit(about, announced.type, announced.reason, announced.message)
        return None

    def _announce_wait(
        self, key: Key, seen: sync_set.SyncSet, shown: sync_set.SyncSetStatus
    ) -> float | None:
        """Emit a kube event if the SyncSet has waited long; otherwise return the seconds until the
        wait counts as long, or None if there is none or it was announced.
        """
        known, now = self._memory(key, seen), self._clock.monotonic()
        known.wait = wait_events.follow(known.wait, shown, now=now)
        left_s = wait_events.seconds_to_announcement(known.wait, now=now)
        if known.wait is None or left_s is None or left_s > 0:
            return left_s
        known.wait = msgspec.structs.replace(known.wait, announced=True)
        about = events.reference(kinds.SYNC_SETS, seen)
        self._emit(about, events.NORMAL, shown.reason, shown.message)
        return None

    def _engine(self) -> flow_pond_interfaces.Flows:
        if self._flows is None:
            raise errors.NotSynced("the engine of flows is not there yet")
        return self._flows

    def _workers(self) -> hub_ports.ClusterHub:
        if self._hub is None:
            raise errors.NotSynced("the dispatcher is not there yet")
        return self._hub

    def _get_ledger(self) -> flow_pond_interfaces.PondLedger:
        if self._ledger is None:
            raise errors.NotSynced("the ponds are not known yet")
        return self._ledger


def _lease(seen: sync_set.SyncSet) -> str:
    """Return the name of the lease of the newest generation, which is also the name of its
    directory.
    """
    return cluster_manifests.run_name(seen.metadata.name, seen.status.generation)


def _outputs_lease(seen: sync_set.SyncSet) -> str:
    return output_snapshots.lease_name(seen.metadata.name, seen.status.generation)


def _pond(seen: sync_set.SyncSet) -> tuple[str, str]:
    """Return the namespace and name of the DataPond of a SyncSet."""
    return seen.metadata.namespace, seen.spec.data.pond.name


def _request(seen: sync_set.SyncSet, snapshot: str) -> str:
    """Return the request name of the pin of a snapshot, unique to the generation."""
    return f"{seen.metadata.uid}-g{seen.status.generation}-{snapshot}"


def _changes_flow(decided: plan.Plan) -> bool:
    """Return whether the plan starts, stops or changes the flow."""
    asked = (decided.start, decided.kill, decided.retry, decided.suspend)
    return any(one is not None for one in asked)


def _is_rerun_requested(seen: sync_set.SyncSet, view: flow_model.FlowRunView) -> bool:
    """Return whether a finished generation should run again: another run is requested, and the flow
    has not succeeded.
    """
    asked = seen.spec.run > seen.status.run
    return asked and view.phase is not flow_model.FlowPhase.SUCCEEDED


def _is_finished(seen: sync_set.SyncSet) -> bool:
    """Return whether the newest generation has finished and no other run is requested."""
    final = bool(seen.status.phase) and sync_set.Phase(seen.status.phase).final
    current = seen.status.generation == seen.spec.generation
    return final and current and seen.status.run >= seen.spec.run
