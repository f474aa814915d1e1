"""Checks of SyncSets beyond their schema; problems are (field, text) pairs.

Used by the API server's admission, by the controller, which reports the same problems in the status
on a real Kubernetes, by `kiln render` and by the SDK; `crd_sync_sets` has some of the rules in CEL.
Pure: a check reads the object itself and no other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import (
    crd_sync_sets,
    flow_output_validation,
    flow_program,
    flow_validation,
    kind_field_effects,
    names,
    pod_template_shape,
    quantities,
    snapshot_source_validation,
    sync_set,
    task_validation,
)
from kilnwork.kit import globs

Problem = task_validation.Problem

GATE = "kilnwork.dev/gang"
"""Scheduling gate of the Pods of a gang."""

VOLUME = "kiln-data"
"""Name of the volume of a worker's Pod that contains the data of its generation."""

OUTPUTS_VOLUME = "kiln-outputs"
"""Name of the volume of a worker's Pod into which tasks write outputs."""

_RESOURCES = ("cpu", "memory")

_COUNTED = frozenset({"range", "hash"})
"""Schemes that need `count` or `group` for the number of shards."""

_TWICE = "is there twice"
_GROUPS = "spec.resources.groups"
_CONTROLLER = "spec.resources.controller"
_SNAPSHOTS = "spec.data.snapshots"
_OBJECT_META = frozenset({"name", "labels", "annotations", "namespace"})

CHANGEABLE = frozenset(
    {"deadlineSeconds", "generation", "keep", "killTimestamp", "priority", "run", "suspend"}
)
"""Fields of the spec that may be changed within a generation; `priority` only until the flow
starts."""


def validate_sync_set(declared: sync_set.SyncSet) -> list[Problem]:
    """Return the problems of a SyncSet that conforms to its schema."""
    spec = declared.spec
    return [
        *_name_problems(declared.metadata.name, spec),
        *_group_problems(spec),
        *_snapshot_problems(spec),
        *_pond_problems(spec),
        *_output_problems(spec),
        *_object_problems(spec.resources.objects, declared.metadata.namespace),
        *_generation_problems(spec),
        *_flow_problems(spec),
    ]


def validate_sync_set_update(old: sync_set.SyncSet, new: sync_set.SyncSet) -> list[Problem]:
    """Return a problem for each forbidden change of a SyncSet."""
    if new.spec.generation < old.spec.generation:
        text = f"{crd_sync_sets.GENERATION_RULE}, it was {old.spec.generation}"
        return [("spec.generation", text)]
    if new.spec.generation > old.spec.generation:
        return []
    problems = list(_frozen_problems(old.spec, new.spec))
    if new.spec.run < old.spec.run:
        problems.append(("spec.run", f"{crd_sync_sets.RUN_RULE}, it was {old.spec.run}"))
    begun = bool(old.status.start_time) and old.status.generation == old.spec.generation
    if begun and new.spec.priority != old.spec.priority:
        problems.append(("spec.priority", crd_sync_sets.FROZEN))
    return problems


def backend_problems(spec: sync_set.SyncSetSpec, backend: sync_set.Backend) -> list[Problem]:
    """Return why a valid spec cannot be carried out by a backend."""
    if backend is not sync_set.Backend.PODS:
        return []
    problems = [
        problem
        for at, group in _group_places(spec)
        for problem in _request_problems(f"{at}.template", group.template)
    ]
    for position, snapshot in enumerate(spec.data.snapshots):
        if snapshot.deliver is sync_set.Deliver.SHARD and snapshot.access is sync_set.Access.COPY:
            text = (
                "is copy, and the shards of a node may become more while the flow runs, which "
                "would change what its workers write to: give access read, or deliver all"
            )
            problems.append((f"{_SNAPSHOTS}[{position}].access", text))
    return problems


def _name_problems(name: str, spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    if problem := names.label_problem(name):
        yield "metadata.name", problem
    for at, group in _group_places(spec):
        together = len(name) + len(group.name)
        if together > crd_sync_sets.MAX_NAMES:
            yield (
                at if at == _CONTROLLER else f"{at}.name",
                (
                    f"{group.name} and the name of the SyncSet have {together} characters "
                    f"together; at most {crd_sync_sets.MAX_NAMES} leave room for generation and "
                    "largest index in the names of Pods, <set>-g9999-<group>-99999, which have 63"
                ),
            )


# Groups


def _group_places(spec: sync_set.SyncSetSpec) -> Iterator[tuple[str, sync_set.Group]]:
    """Yield the path of each group and the group, including the controller."""
    for position, group in enumerate(spec.resources.groups):
        yield f"{_GROUPS}[{position}]", group
    if spec.resources.controller is not None:
        yield _CONTROLLER, spec.resources.controller.group


def _group_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    groups = spec.resources.groups
    snapshots = {snapshot.name: snapshot for snapshot in spec.data.snapshots}
    yield from _duplicates((g.name for g in groups), _GROUPS)
    for position, group in enumerate(groups):
        if spec.resources.controller is not None and group.name == sync_set.CONTROLLER:
            yield f"{_GROUPS}[{position}].name", crd_sync_sets.CONTROLLER_RULE
    for at, group in _group_places(spec):
        yield from _number_problems(at, group)
        if group.on_pod_failed is sync_set.OnPodFailed.RESTART_GROUP:
            yield f"{at}.onPodFailed", crd_sync_sets.RESTART_RULE
        yield from _near_problems(at, group, snapshots)
        account = (f"{at}.serviceAccountName", group.service_account_name)
        yield from task_validation.name_problems((account,))
        yield from _template_problems(f"{at}.template", group.template)
    if spec.backend is sync_set.Backend.PODS:
        yield from backend_problems(spec, spec.backend)


def _number_problems(at: str, group: sync_set.Group) -> Iterator[Problem]:
    if group.replicas_of is not None:
        if group.replicas is not None:
            yield f"{at}.replicas", crd_sync_sets.REPLICAS_RULE
        if group.elastic is not None:
            yield f"{at}.elastic", "is for replicas: with replicasOf the number follows from data"
        if group.min is not None and group.min > group.replicas_of.max:
            yield f"{at}.min", f"is {group.min}, more than replicasOf.max, {group.replicas_of.max}"
        return
    if group.min is not None and group.min > group.count:
        yield f"{at}.min", f"is {group.min}, more than replicas, {group.count}"
    if group.elastic is not None and group.count > group.elastic.max:
        yield f"{at}.replicas", f"is {group.count}, more than elastic.max, {group.elastic.max}"


def _near_problems(
    at: str, group: sync_set.Group, snapshots: dict[str, sync_set.Snapshot]
) -> Iterator[Problem]:
    for position, name in enumerate(group.near):
        if name not in snapshots:
            yield f"{at}.near[{position}]", _unknown_message("snapshot", name, snapshots)
    if group.near_mode is sync_set.NearMode.REQUIRED and not group.near:
        yield f"{at}.nearMode", "is required, but near names no snapshot to be near to"
    if group.replicas_of is not None:
        field, name = f"{at}.replicasOf.snapshot", group.replicas_of.snapshot
        if name not in snapshots:
            yield field, _unknown_message("snapshot", name, snapshots)
        elif snapshots[name].shard is None:
            yield field, f"has no shards: give snapshot {name} a shard with a count"
        elif snapshots[name].shard.group is not None:  # type: ignore[union-attr]  # reported above
            yield field, f"would follow from itself: give the shard of snapshot {name} a count"


def _template_problems(at: str, template: dict[str, Any] | None) -> Iterator[Problem]:
    if problem := pod_template_shape.shape_problem(template):
        yield at, problem
        return
    spec = (template or {}).get("spec") or {}
    if spec.get("nodeName"):
        yield (
            f"{at}.spec.nodeName",
            "may not be given: workers are placed together; use nodeSelector",
        )
    for position, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("name") in (VOLUME, OUTPUTS_VOLUME):
            yield f"{at}.spec.volumes[{position}].name", "is that of the data: choose another"


def _request_problems(at: str, template: dict[str, Any] | None) -> Iterator[Problem]:
    """Yield missing requests, without which it is unknown whether all workers fit."""
    if pod_template_shape.shape_problem(template):
        return  # reported above
    containers = ((template or {}).get("spec") or {}).get("containers") or [{}]
    position = kind_field_effects.worker_position(containers)
    resources = containers[position].get("resources") or {}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    missing = [name for name in _RESOURCES if not _is_positive(given.get(name))]
    if missing:
        yield (
            f"{at}.spec.containers[{position}].resources.requests",
            (
                f"must have {' and '.join(missing)}: with backend pods workers start when there is "
                "room for all of them"
            ),
        )


def _is_positive(amount: Any) -> bool:
    try:
        return quantities.parse(str(amount)) > 0
    except ValueError:
        return False


# Data


def _snapshot_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    snapshots, groups = spec.data.snapshots, [g.name for g in spec.resources.groups]
    yield from _duplicates((s.name for s in snapshots), _SNAPSHOTS)
    for position, snapshot in enumerate(snapshots):
        at = f"{_SNAPSHOTS}[{position}]"
        yield from snapshot_source_validation.problems(snapshot.source, f"{at}.from")
        if snapshot.deliver is sync_set.Deliver.SHARD and snapshot.shard is None:
            yield f"{at}.deliver", "is shard, but there is no shard that says how it is divided"
        if snapshot.shard is not None:
            yield from _shard_problems(f"{at}.shard", snapshot.shard, groups)


def _shard_problems(at: str, shard: sync_set.Shard, groups: Sequence[str]) -> Iterator[Problem]:
    if shard.count is not None and shard.group is not None:
        yield f"{at}.group", crd_sync_sets.SHARD_RULE
    elif shard.group is not None and shard.group not in groups:
        yield f"{at}.group", _unknown_message("group", shard.group, groups)
    elif shard.count is None and shard.group is None and shard.by in _COUNTED:
        yield f"{at}.count", f"must be given, or group: by {shard.by} divides into any number"
    if shard.key and shard.by != "hash":
        yield f"{at}.key", "is for by hash"
    if shard.unit != "bytes" and shard.by != "range":
        yield f"{at}.unit", "is for by range"
    if (shard.by == "glob") != bool(shard.patterns):
        yield f"{at}.patterns", "is for by glob, which needs them"
    for position, pattern in enumerate(shard.patterns or ()):
        if why := globs.problem(pattern):
            yield f"{at}.patterns[{position}]", why


def _pond_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    pond = spec.data.pond
    yield from task_validation.name_problems((("spec.data.pond.name", pond.name),))
    if pond.order is sync_set.StartOrder.FOLLOW:
        for position, group in enumerate(spec.resources.groups):
            if group.near_mode is sync_set.NearMode.REQUIRED:
                yield (
                    f"{_GROUPS}[{position}].nearMode",
                    (
                        "is required, which needs data.pond.order lead or auto: with follow "
                        "workers have their nodes before the data"
                    ),
                )


def _output_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    outputs = spec.data.outputs
    yield from _duplicates((one.name for one in outputs), "spec.data.outputs")
    for position, output in enumerate(outputs):
        if output.glob and (why := globs.problem(output.glob)):
            yield f"spec.data.outputs[{position}].glob", why
    for position, problem in flow_output_validation.problems(spec.flow, outputs):
        yield f"spec.data.outputs[{position}].{problem.path}", problem.text


# Other fields


def _object_problems(objects: Sequence[dict[str, Any]], namespace: str) -> Iterator[Problem]:
    seen: set[tuple[str, str, str]] = set()
    for position, manifest in enumerate(objects):
        at = f"spec.resources.objects[{position}]"
        given = [manifest.get("apiVersion"), manifest.get("kind")]
        metadata = manifest.get("metadata")
        if not all(isinstance(text, str) and text for text in given):
            yield at, "must have apiVersion and kind"
        elif not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            yield f"{at}.metadata.name", "must be given"
        else:
            yield from _metadata_problems(f"{at}.metadata", metadata, namespace)
            key = (str(given[0]), str(given[1]), metadata["name"])
            if key in seen:
                yield f"{at}.metadata.name", _TWICE
            seen.add(key)


def _metadata_problems(at: str, metadata: dict[str, Any], namespace: str) -> Iterator[Problem]:
    if problem := names.subdomain_problem(metadata["name"]):
        yield f"{at}.name", problem
    for field in sorted(metadata.keys() - _OBJECT_META):
        yield f"{at}.{field}", "may not be given: the SyncSet owns the object"
    elsewhere = metadata.get("namespace", namespace)
    if elsewhere != namespace:
        yield f"{at}.namespace", f"must be that of the SyncSet, {namespace}, or not be given"


def _generation_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    if spec.replay is not None and spec.replay.of >= spec.replay.generation:
        yield "spec.replay.of", crd_sync_sets.REPLAY_RULE
    yield from task_validation.time_problems((("spec.killTimestamp", spec.kill_timestamp),))


def _flow_problems(spec: sync_set.SyncSetSpec) -> Iterator[Problem]:
    found = flow_validation.problems(
        spec.flow,
        snapshots={one.name: one.shard is not None for one in spec.data.snapshots},
        groups=[group.name for group in spec.resources.every_group],
    )
    for path, text in found:
        yield f"spec.flow.{path}", text
    if not found:
        program, _ = flow_program.build(spec.flow)
        yield from _task_problems(program)
        yield from _delivery_problems(spec, program)


def _task_problems(program: flow_program.Program) -> Iterator[Problem]:
    """Yield the problems of the tasks of steps, as for other tasks; the names of their inputs
    are given."""
    for node in program.all_nodes():
        if node.task is None:
            continue
        at = f"spec.flow.{node.path}"
        if node.step.task_template is not None:
            at += ".taskTemplate"
        for field, why in task_validation.template_problems(node.task, given_inputs=None):
            yield at + field.removeprefix("spec"), why


def _delivery_problems(
    spec: sync_set.SyncSetSpec, program: flow_program.Program
) -> Iterator[Problem]:
    """Yield snapshots with `deliver: shard` whose readers do not have a task for each shard."""
    readers = flow_program.shard_readers(program)
    for position, snapshot in enumerate(spec.data.snapshots):
        if snapshot.deliver is not sync_set.Deliver.SHARD or snapshot.shard is None:
            continue
        steps = readers.get(snapshot.name, [])
        if not steps:
            yield (
                f"{_SNAPSHOTS}[{position}].deliver",
                (
                    f"is shard, but no step has of: data.{snapshot.name}, whose workers would get "
                    "the shards: write deliver: all"
                ),
            )
        for step in steps:
            if step.needs_no_group:
                yield (
                    f"spec.flow.{step.path}.taskTemplate",
                    (
                        f"runs on no group's workers, and only their nodes get shards of snapshot "
                        f"{snapshot.name}: give that deliver: all"
                    ),
                )


def _duplicates(given: Iterable[str], at: str) -> Iterator[Problem]:
    listed = list(given)
    counts = Counter(listed)
    for position, name in enumerate(listed):
        if counts[name] > 1 and listed.index(name) < position:
            yield f"{at}[{position}].name", _TWICE


def _unknown_message(what: str, name: str, known: Iterable[str]) -> str:
    listed = ", ".join(known)
    return f"names no {what}: {name!r}" + (f"; there are {listed}" if listed else "; there is none")


# Changes


def _frozen_problems(old: sync_set.SyncSetSpec, new: sync_set.SyncSetSpec) -> Iterator[Problem]:
    before, after = _frozen(old), _frozen(new)
    if new.replay is None:  # it was read when the generation was admitted
        before.pop("replay", None)
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            yield f"spec.{field}", crd_sync_sets.FROZEN


def _frozen(spec: sync_set.SyncSetSpec) -> dict[str, Any]:
    """Return the part of a spec that is immutable within a generation: all fields but CHANGEABLE
    and the replicas of elastic groups."""
    groups = tuple(
        group if group.elastic is None else msgspec.structs.replace(group, replicas=None)
        for group in spec.resources.groups
    )
    resources = msgspec.structs.replace(spec.resources, groups=groups)
    whole = msgspec.to_builtins(msgspec.structs.replace(spec, resources=resources))
    return {field: value for field, value in whole.items() if field not in CHANGEABLE}
