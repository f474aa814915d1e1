"""The requirements of a generation: its snapshots with shards, its groups of workers, and its flow.

No I/O. Used by `plan`, `snapshot_digests`, `reconciler` and `kiln render`. A replay uses the
snapshots and the flow of the generation that it repeats.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import flow, flow_program, sync_set
from kilnwork.controllers.data_pond import model
from kilnwork.controllers.gangs import cluster_manifests, data_portions, port
from kilnwork.data.pond import manifest, shards
from kilnwork.jobs.flows import run_types as flow_model

LEAD_BYTES = 256 << 20
"""Size of the data in bytes above which order `auto` means `lead`: the data is fetched first, and
workers start on the nodes that hold it.
"""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A flow to run, with its pinned data."""

    flow: flow.Flow
    snapshots: Mapping[str, flow_model.SnapshotRef]
    outputs: tuple[sync_set.Output, ...] = ()

    @property
    def needs_pond(self) -> bool:
        """Whether the flow reads data or writes outputs."""
        return bool(self.snapshots or self.outputs)


def replicas(group: sync_set.Group, refs: Mapping[str, flow_model.SnapshotRef]) -> int:
    """Return the number of workers that a group should have."""
    if group.replicas_of is None:
        return group.count
    found = refs.get(group.replicas_of.snapshot)
    count = len(found.shards) if found is not None and found.shards else 1
    return min(count, group.replicas_of.max)


def groups(
    seen: sync_set.SyncSet,
    generation: int,
    program: Program,
    *,
    backend: sync_set.Backend | None,
) -> tuple[port.GroupSpec, ...]:
    """Return the groups of workers that a generation needs."""
    refs = program.snapshots
    readers = _readers(seen, program, backend=backend)
    found = []
    for group in seen.spec.resources.every_group:
        count = replicas(group, refs)
        shards = [len(refs[name].shards or ()) for name in readers.get(group.name, ())]
        most = count if group.elastic is None else max(count, group.elastic.max)
        made = _group(seen, generation, group, count)
        found.append(msgspec.structs.replace(made, portions=min(most, max(shards, default=0))))
    return tuple(found)


def sharded_snapshots(
    seen: sync_set.SyncSet,
    refs: Mapping[str, flow_model.SnapshotRef],
    *,
    backend: sync_set.Backend | None,
) -> tuple[str, ...]:
    """Return the snapshots that are divided over nodes, so that each node gets only the shards of
    its workers; none on a single node.
    """
    if backend is not sync_set.Backend.PODS:
        return ()
    return tuple(
        snapshot.name
        for snapshot in seen.spec.data.snapshots
        if snapshot.deliver is sync_set.Deliver.SHARD
        and snapshot.name in refs
        and refs[snapshot.name].shards
    )


def _readers(
    seen: sync_set.SyncSet, program: Program, *, backend: sync_set.Backend | None
) -> dict[str, list[str]]:
    """Return for each group the snapshots that its steps read and that are delivered by shards."""
    names = sharded_snapshots(seen, program.snapshots, backend=backend)
    if not names:
        return {}
    built, _ = flow_program.build(program.flow)
    first = seen.spec.resources.groups[0].name
    found: dict[str, list[str]] = {}
    for name, steps in flow_program.shard_readers(built).items():
        for group in {step.step.group or first for step in steps if not step.needs_no_group}:
            if name in names:
                found.setdefault(group, []).append(name)
    return found


def _group(
    seen: sync_set.SyncSet, generation: int, group: sync_set.Group, count: int
) -> port.GroupSpec:
    return port.GroupSpec(
        name=group.name,
        cluster=cluster_manifests.cluster_name(seen.metadata.name, generation, group.name),
        replicas=count,
        min=min(count, group.min or count),
        slots=group.slots_per_worker,
        account=group.service_account_name,
        template=group.template,
        near=group.near_mode if group.near else sync_set.NearMode.NONE,
        fails=group.on_pod_failed is sync_set.OnPodFailed.FAIL,
        elastic=group.elastic is not None,
        spawns_on=_spawns_on(seen, generation, group),
    )


def _spawns_on(seen: sync_set.SyncSet, generation: int, group: sync_set.Group) -> str:
    """Return the TaskCluster on which the controller group spawns tasks by default: that of the
    first group. For any other group, return "".
    """
    resources = seen.spec.resources
    if resources.controller is None or group.name != sync_set.CONTROLLER:
        return ""
    first = resources.groups[0].name
    return cluster_manifests.cluster_name(seen.metadata.name, generation, first)


class ShardCache:
    """A cache for the planned shards of one SyncSet.

    Each pass before the flow's start needs them, and planning many thousands takes a while.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], list[Any]]] = {}

    def shards(
        self, seen: sync_set.SyncSet, shard: sync_set.Shard, of: manifest.Manifest, *, name: str
    ) -> list[Any]:
        """Return the shards of a snapshot as `shard_documents` does, from the cache if they are
        there.
        """
        key = (of.digest, shard, _shard_count(seen, shard))
        known = self._known.get(name)
        if known is None or known[0] != key:
            known = self._known[name] = key, shard_documents(seen, shard, of, name=name)
        return known[1]

    def forget(self) -> None:
        """Remove all shards from the cache."""
        self._known.clear()


def snapshot_ref(
    seen: sync_set.SyncSet, snapshot: sync_set.Snapshot, pin: model.Pin, *, planned: ShardCache
) -> flow_model.SnapshotRef | None:
    """Return the flow's reference to a pinned snapshot; None while its manifest is missing."""
    if snapshot.shard is None:
        return flow_model.SnapshotRef(name=snapshot.name, digest=pin.digest, bytes=pin.bytes)
    if pin.manifest is None:
        return None
    return flow_model.SnapshotRef(
        name=snapshot.name,
        digest=pin.digest,
        bytes=pin.bytes,
        shards=planned.shards(seen, snapshot.shard, pin.manifest, name=snapshot.name),
    )


def shard_documents(
    seen: sync_set.SyncSet, shard: sync_set.Shard, of: manifest.Manifest, *, name: str
) -> list[Any]:
    """Return the shards of a snapshot as JSON documents, which are inputs of steps. Raises
    ManifestRefused.
    """
    scheme = shards.Scheme(by=shard.by, key=shard.key, patterns=shard.patterns, unit=shard.unit)
    planned = shards.plan(of, scheme, _shard_count(seen, shard), snapshot=name)
    found: list[Any] = msgspec.to_builtins(planned)
    return found


def changed_shard_counts(
    seen: sync_set.SyncSet,
    refs: Mapping[str, flow_model.SnapshotRef],
    *,
    backend: sync_set.Backend | None,
) -> dict[str, int]:
    """Return the new numbers of shards of snapshots that should have one shard for each worker but
    do not.

    Empty for a replay, which keeps its division, and for snapshots that nodes hold in portions.
    """
    if seen.status.replay_of is not None:
        return {}
    fixed = sharded_snapshots(seen, refs, backend=backend)
    return {
        one.name: count
        for one in seen.spec.data.snapshots
        if one.shard is not None and one.shard.group is not None and one.name not in fixed
        if one.name in refs and (count := _shard_count(seen, one.shard)) is not None
        if len(refs[one.name].shards or ()) != count
    }


def _shard_count(seen: sync_set.SyncSet, shard: sync_set.Shard) -> int | None:
    named = {group.name: group.count for group in seen.spec.resources.groups}
    return shard.count if shard.group is None else named[shard.group]


def data_leads(seen: sync_set.SyncSet, refs: Mapping[str, flow_model.SnapshotRef]) -> bool:
    """Return whether the data is fetched first, so that workers start on the nodes that hold it."""
    order = seen.spec.data.pond.order
    if order is not sync_set.StartOrder.AUTO:
        return order is sync_set.StartOrder.LEAD
    required = any(
        group.near_mode is sync_set.NearMode.REQUIRED for group in seen.spec.resources.groups
    )
    return required or sum(ref.bytes for ref in refs.values()) > LEAD_BYTES


def wanted_snapshots(
    seen: sync_set.SyncSet,
    program: Program,
    *,
    counts: Mapping[str, int],
    portions: data_portions.Places,
    backend: sync_set.Backend | None,
) -> tuple[model.WantedSnapshot, ...]:
    """Return the snapshots that each node should hold: all files, or for divided snapshots only
    those of its `portions`.

    `counts`: number of portions of each group.
    """
    paths: dict[str, dict[str, set[str]]] = {
        name: {} for name in sharded_snapshots(seen, program.snapshots, backend=backend)
    }
    for group, names in _readers(seen, program, backend=backend).items():
        for name in names:
            files = _files(program.snapshots[name], counts[group])
            for node, has in portions.get(group, {}).items():
                into = paths[name].setdefault(node, set())
                into.update(*(files[portion] for portion in has))
    given = {snapshot.name: snapshot for snapshot in seen.spec.data.snapshots}
    access = {name: str(snapshot.access) for name, snapshot in given.items()}
    sources = {name: snapshot.source for name, snapshot in given.items()}
    return tuple(
        model.WantedSnapshot(
            name=name,
            digest=found.digest,
            access=access.get(name, str(sync_set.Access.READ)),
            source=sources.get(name),
            paths_by_node=(
                {node: tuple(sorted(files)) for node, files in sorted(paths[name].items())}
                if name in paths
                else None
            ),
        )
        for name, found in sorted(seen.status.snapshots.items())
    )


def _files(ref: flow_model.SnapshotRef, portions: int) -> list[set[str]]:
    """Return the paths of the files of each portion of a snapshot."""
    found: list[set[str]] = [set() for _ in range(portions)]
    for shard in ref.shards or ():
        portion = shards.portion(shard["index"], shard["count"], portions)
        found[portion].update(file["path"] for file in shard["files"])
    return found


def is_writable(seen: sync_set.SyncSet, backend: sync_set.Backend | None) -> bool:
    """Return whether workers may write in the directory of their data.

    They may if a snapshot is writable, or on a machine where Pods are processes, for which
    read-only mounts have no effect and files are protected by their modes.
    """
    return backend is sync_set.Backend.LOCAL or any(
        s.access is sync_set.Access.COPY for s in seen.spec.data.snapshots
    )
