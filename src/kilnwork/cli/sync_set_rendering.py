"""Objects that a SyncSet would create, computed without a server for `kiln render`.

Values that only a server knows are omitted: owner uids and digests. No I/O.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import (
    kinds,
    meta,
    sync_set,
    sync_set_validation,
    task_cluster,
    volcano_rendering,
)
from kilnwork.cli import errors
from kilnwork.controllers import worker_pods
from kilnwork.controllers.gangs import cluster_manifests, port
from kilnwork.controllers.sync_set import requirements

LOCAL, PODS, VOLCANO = "local", "pods", "volcano"
BACKENDS = (LOCAL, PODS, VOLCANO)

_POND = "/var/lib/kilnwork/ponds"
"""Default `path` of a DataPond in a cluster."""

CHANNEL = "tls://kilnwork.kilnwork-system:7445"
"""Address to which workers of an installed manager connect; see `kiln install`."""


def objects(
    body: meta.JsonObject, *, backend: str | None, namespace: str, image: str
) -> Iterator[meta.JsonObject]:
    """Yield the objects that a SyncSet would create, in the order of their creation.

    `backend`: None for that of the SyncSet. `image`: image of workers whose template names none.
    Raises `errors.InvalidInput` for a SyncSet that would be refused.
    """
    seen = _read(body, namespace)
    auto = seen.spec.backend is sync_set.Backend.AUTO
    backend = backend or (PODS if auto else str(seen.spec.backend))
    checked = sync_set.Backend.LOCAL if backend == LOCAL else sync_set.Backend.PODS
    problems = sync_set_validation.validate_sync_set(seen)
    problems += [
        one
        for one in sync_set_validation.backend_problems(seen.spec, checked)
        if one not in problems
    ]
    if backend == VOLCANO:
        problems += _volcano_problems(seen)
    if problems:
        listed = "\n".join(f"  {field} {why}" for field, why in problems)
        raise errors.InvalidInput(f"SyncSet {seen.metadata.name} would be refused:\n{listed}")
    spec = _gang(seen, checked)
    yield from (_in_namespace(one, seen) for one in seen.spec.resources.objects)
    if backend == VOLCANO:
        yield from _volcano(spec, image=image)
        return
    for group in spec.groups:
        yield _unowned(cluster_manifests.task_cluster(spec, group, gated=backend == PODS))


def _read(body: meta.JsonObject, namespace: str) -> sync_set.SyncSet:
    metadata = {"namespace": namespace, **(body.get("metadata") or {})}
    try:
        return msgspec.convert({**body, "metadata": metadata}, sync_set.SyncSet, strict=False)
    except msgspec.ValidationError as error:
        raise errors.InvalidInput(f"{error}") from error


def _volcano_problems(seen: sync_set.SyncSet) -> list[sync_set_validation.Problem]:
    """Return a problem for each snapshot that is delivered by shard.

    With Volcano it is unknown which worker gets which shards.
    """
    text = "is shard, which is for backends pods and local: write deliver: all"
    return [
        (f"spec.data.snapshots[{position}].deliver", text)
        for position, snapshot in enumerate(seen.spec.data.snapshots)
        if snapshot.deliver is sync_set.Deliver.SHARD
    ]


def _gang(seen: sync_set.SyncSet, checked: sync_set.Backend) -> port.GangSpec:
    generation, name = seen.spec.generation, seen.metadata.name
    data, program = None, requirements.Program(flow=seen.spec.flow, snapshots={})
    if seen.spec.data.snapshots or seen.spec.data.outputs:
        run = cluster_manifests.run_name(name, generation)
        namespace, pond = seen.metadata.namespace, seen.spec.data.pond.name
        root = f"{_POND}/{namespace}/{pond}"
        data = port.DataPlaces(
            path=f"{root}/runs/{namespace}/{run}",
            outputs=f"{root}/outputs/{namespace}/{run}" if seen.spec.data.outputs else "",
            writable=requirements.is_writable(seen, checked),
        )
    return port.GangSpec(
        namespace=seen.metadata.namespace,
        name=name,
        uid="",
        generation=generation,
        groups=tuple(
            _largest(seen, group)
            for group in requirements.groups(seen, generation, program, backend=checked)
        ),
        wait_s=seen.spec.resources.gang.wait_seconds,
        requeue=True,
        data=data,
    )


def _largest(seen: sync_set.SyncSet, group: port.GroupSpec) -> port.GroupSpec:
    """Return a group with its maximum number of workers if the number depends on data.

    Other groups are returned unchanged.
    """
    for given in seen.spec.resources.groups:
        if given.name == group.name and given.replicas_of is not None:
            most = given.replicas_of.max
            return msgspec.structs.replace(group, replicas=most, min=given.min or most)
    return group


def _volcano(spec: port.GangSpec, *, image: str) -> Iterator[meta.JsonObject]:
    """Yield the Volcano Job with the Pods of all groups, and TaskClusters without Pods of their
    own.

    The workers use the tokens of the TaskClusters.
    """
    settings = worker_pods.WorkerPodSettings(
        channel=CHANNEL,
        worker_command=("python", "-m", "kilnwork.worker"),
        worker_image=image,
        ca=b"",
    )
    roles = []
    for group in spec.groups:
        body = _unowned(cluster_manifests.task_cluster(spec, group, gated=False))
        cluster = msgspec.convert(body, task_cluster.TaskCluster, strict=False)
        pod = worker_pods.template(cluster, settings, secret_uid="")
        del pod["metadata"]["ownerReferences"], pod["metadata"]["namespace"]
        roles.append(
            volcano_rendering.Role(
                name=group.name,
                replicas=group.replicas,
                min=group.min,
                template=pod,
                fails=group.fails,
            )
        )
        wanted_spec = {k: v for k, v in body["spec"].items() if k != "template"}
        yield {**body, "spec": {**wanted_spec, "replicas": 0}}
    name = cluster_manifests.run_name(spec.name, spec.generation)
    marks = {
        cluster_manifests.SET_LABEL: cluster_manifests.labels(spec, spec.groups[0])[
            cluster_manifests.SET_LABEL
        ],
        cluster_manifests.GENERATION_LABEL: str(spec.generation),
    }
    try:
        yield volcano_rendering.render(name, roles, namespace=spec.namespace, labels=marks)
    except volcano_rendering.Unrenderable as error:
        raise errors.InvalidInput(f"SyncSet {spec.name}: {error}") from error


def _unowned(body: meta.JsonObject) -> meta.JsonObject:
    metadata = {k: v for k, v in body["metadata"].items() if k != "ownerReferences"}
    return {**body, "metadata": metadata}


def _in_namespace(manifest: meta.JsonObject, seen: sync_set.SyncSet) -> meta.JsonObject:
    metadata = {"namespace": seen.metadata.namespace, **manifest["metadata"]}
    return {**manifest, "metadata": metadata}


def is_sync_set(body: meta.JsonObject) -> bool:
    """Return whether the object of a manifest is a SyncSet."""
    return body.get("kind") == kinds.SYNC_SETS.kind
