"""Every rule of SyncSets is said with the field's path, the value and what to do."""

import copy
from typing import Any

import msgspec
import pytest

from kilnwork.api import admission, meta, sync_set, sync_set_validation

REQUESTS = {"requests": {"cpu": "1", "memory": "1Gi"}}
TEMPLATE = {"spec": {"containers": [{"name": "worker", "resources": REQUESTS}]}}
POD = {"pod": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
SNAPSHOT: dict[str, Any] = {"name": "trades", "from": {"inline": {"a": "1"}}}


def problems(name: str = "risk", **spec: Any) -> dict[str, str]:
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resources": {"groups": [{"name": "worker"}]},
            "flow": {"do": [{"x": {"command": ["true"]}}]},
            **copy.deepcopy(spec),
        },
    }
    return dict(admission.validate_sync_set(body))


def group(**fields: Any) -> dict[str, Any]:
    return {"resources": {"groups": [{"name": "worker", **fields}]}}


def data(*snapshots: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"data": {"snapshots": list(snapshots), **more}}


G = "spec.resources.groups[0]"
S = "spec.data.snapshots[0]"
O = "spec.resources.objects[0]"  # noqa: E741 - beside G and S

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "min": (group(replicas=2, min=3), f"{G}.min", "is 3, more than replicas, 2"),
    "elastic": (
        group(replicas=5, elastic={"max": 4}),
        f"{G}.replicas",
        "is 5, more than elastic.max, 4",
    ),
    "both numbers": (
        group(replicas=5, replicasOf={"snapshot": "trades"}),
        f"{G}.replicas",
        "give either replicas or replicasOf",
    ),
    "near": (group(near=["market"]), f"{G}.near[0]", "names no snapshot: 'market'"),
    "near to nothing": (group(nearMode="required"), f"{G}.nearMode", "near names no snapshot"),
    "required and follow": (
        {
            **group(nearMode="required", near=["trades"]),
            **data(SNAPSHOT, pond={"order": "follow"}),
        },
        f"{G}.nearMode",
        "needs data.pond.order lead or auto",
    ),
    "nodeName": (
        group(template={"spec": {"nodeName": "a"}}),
        f"{G}.template.spec.nodeName",
        "use nodeSelector",
    ),
    "volume": (
        group(template={"spec": {"volumes": [{"name": "kiln-data"}]}}),
        f"{G}.template.spec.volumes[0].name",
        "choose another",
    ),
    "containers that are none": (
        group(template={"spec": {"containers": "x"}}),
        f"{G}.template",
        "is no Pod template: Expected `array | null`, got `str` - at `$.spec.containers`",
    ),
    "resources that are none": (
        {**group(template={"spec": {"containers": [{"resources": "1"}]}}), "backend": "pods"},
        f"{G}.template",
        "got `str` - at `$.spec.containers[0].resources`",
    ),
    "path out of the source": (
        data({"name": "trades", "from": {"source": "lake", "path": "../x"}}),
        f"{S}.from.path",
        "'../x' has the component '..'",
    ),
    "file out of the source": (
        data({"name": "trades", "from": {"source": "lake", "paths": ["a", "/x"]}}),
        f"{S}.from.paths[1]",
        "'/x' is absolute",
    ),
    "file twice": (
        data({"name": "trades", "from": {"source": "lake", "paths": ["a", "a"]}}),
        f"{S}.from.paths[1]",
        "'a' is there twice",
    ),
    "paths and glob": (
        data({"name": "trades", "from": {"source": "lake", "paths": ["a"], "glob": "*"}}),
        f"{S}.from.glob",
        "give paths or glob, not both",
    ),
    "glob that is none": (
        data({"name": "trades", "from": {"source": "lake", "glob": "[z-a]"}}),
        f"{S}.from.glob",
        "pattern '[z-a]' has a range that runs backwards",
    ),
    "pattern that is none": (
        data({**SNAPSHOT, "shard": {"by": "glob", "patterns": ["*.csv", "[a"]}}),
        f"{S}.shard.patterns[1]",
        "a bracket is not closed",
    ),
    "glob of an output that is none": (
        data(outputs=[{"name": "x", "step": "x", "glob": "../*"}]),
        "spec.data.outputs[0].glob",
        "has the component '..'",
    ),
    "directory that no file job has": (
        data({"name": "trades", "from": {"files": "orders", "path": "result"}}),
        f"{S}.from.path",
        "'result': a file job has the directories results, parts, errors, input",
    ),
    "directory beside the file job": (
        data({"name": "trades", "from": {"files": "orders/parts"}}),
        f"{S}.from.files",
        "'orders/parts' is more than a job: its directory goes into path",
    ),
    "inline out of the directory": (
        data({"name": "trades", "from": {"inline": {"../x": ""}}}),
        f"{S}.from.inline",
        "'../x' has the component '..'",
    ),
    "inline in a file": (
        data({"name": "trades", "from": {"inline": {"a": "", "a/b": ""}}}),
        f"{S}.from.inline",
        "'a/b' is below 'a', which is a file",
    ),
    "nothing inline": (
        data({"name": "trades", "from": {"inline": {}}}),
        f"{S}.from.inline",
        "0 files of 0 bytes",
    ),
    "path of inline": (
        data({"name": "trades", "from": {"inline": {"a": ""}, "path": "a"}}),
        f"{S}.from.path",
        "inline files have paths of their own",
    ),
    "Pod of a step that is none": (
        {"flow": {"do": [{"x": {"taskTemplate": {"pod": {"spec": {"containers": "x"}}}}}]}},
        "spec.flow.do[0].x.taskTemplate.pod.spec.containers",
        'must be a list, not "x"',
    ),
    "command that cannot be started": (
        {"flow": {"do": [{"x": {"command": ["echo", "a\0b"]}}]}},
        "spec.flow.do[0].x.command[1]",
        "NUL",
    ),
    "restart-group": (
        group(onPodFailed="restart-group"),
        f"{G}.onPodFailed",
        "write replace, or fail, after which `kiln replay` starts the whole set again",
    ),
    "requests": (
        {**group(), "backend": "pods"},
        f"{G}.template.spec.containers[0].resources.requests",
        "must have cpu and memory",
    ),
    "shards that no step reads": (
        data({**SNAPSHOT, "shard": {"by": "files"}, "deliver": "shard"}),
        f"{S}.deliver",
        "no step has of: data.trades",
    ),
    "shards for a step without a group": (
        {
            **data({**SNAPSHOT, "shard": {"by": "files"}, "deliver": "shard"}),
            "flow": {"do": [{"x": {"each": "s", "of": "data.trades", "taskTemplate": POD}}]},
        },
        "spec.flow.do[0].x.taskTemplate",
        "give that deliver: all",
    ),
    "shards that are copied": (
        {
            **group(template=TEMPLATE),
            **data({**SNAPSHOT, "shard": {"by": "files"}, "deliver": "shard", "access": "copy"}),
            "backend": "pods",
        },
        f"{S}.access",
        "give access read",
    ),
    "deliver without shards": (data({**SNAPSHOT, "deliver": "shard"}), f"{S}.deliver", "no shard"),
    "controller": (
        {"resources": {"groups": [{"name": "controller"}], "controller": {}}},
        "spec.resources.groups[0].name",
        "no group may be called controller beside resources.controller",
    ),
    "output of no step": (
        data(outputs=[{"name": "x", "step": "prize"}]),
        "spec.data.outputs[0].step",
        "names no step of flow.do: 'prize'; there are x",
    ),
    "output of steps in a step": (
        {
            **data(outputs=[{"name": "x", "step": "both"}]),
            "flow": {"do": [{"both": {"fork": {"a": {"call": "m.f"}, "b": {"call": "m.f"}}}}]},
        },
        "spec.data.outputs[0].step",
        "holds other steps: name one of them, both.a, both.b",
    ),
    "output of a Pod": (
        {
            **data(outputs=[{"name": "x", "step": "far"}]),
            "flow": {"do": [{"far": {"taskTemplate": {"command": ["a"], "clusterName": "other"}}}]},
        },
        "spec.data.outputs[0].step",
        "does not run on workers of the set",
    ),
    "output of known results": (
        {
            **data(outputs=[{"name": "x", "step": "pure"}]),
            "flow": {"do": [{"pure": {"call": "m.f", "deterministic": True}}]},
        },
        "spec.data.outputs[0].step",
        "is deterministic: its results are used again without running it",
    ),
    "two outputs of a name": (
        data(outputs=[{"name": "a", "step": "x"}, {"name": "a", "step": "x"}]),
        "spec.data.outputs[1].name",
        "is there twice",
    ),
    "part of an output": (
        data({"name": "t", "from": {"output": {"set": "a", "name": "b"}, "glob": "*"}}),
        "spec.data.snapshots[0].from.glob",
        "an output is taken whole",
    ),
    "rows of files": (
        data({**SNAPSHOT, "shard": {"by": "files", "unit": "rows"}}),
        f"{S}.shard.unit",
        "is for by range",
    ),
    "two sources": (
        data({"name": "x", "from": {"uri": "file:///x", "inline": {"a": ""}}}),
        f"{S}.from",
        "must have exactly one of source, uri, inline, output and files",
    ),
    "twice": (data(SNAPSHOT, SNAPSHOT), "spec.data.snapshots[1].name", "is there twice"),
    "shard of no group": (
        data({**SNAPSHOT, "shard": {"by": "files", "group": "other"}}),
        f"{S}.shard.group",
        "names no group: 'other'; there are worker",
    ),
    "shard without a number": (
        data({**SNAPSHOT, "shard": {"by": "hash"}}),
        f"{S}.shard.count",
        "must be given, or group",
    ),
    "replicas of no shards": (
        {**group(replicasOf={"snapshot": "trades"}), **data(SNAPSHOT)},
        f"{G}.replicasOf.snapshot",
        "has no shards",
    ),
    "replicas of themselves": (
        {
            **group(replicasOf={"snapshot": "trades"}),
            **data({**SNAPSHOT, "shard": {"by": "files", "group": "worker"}}),
        },
        f"{G}.replicasOf.snapshot",
        "would follow from itself",
    ),
    "object without a kind": (
        {"resources": {"groups": [{"name": "worker"}], "objects": [{"kind": "X"}]}},
        O,
        "must have apiVersion and kind",
    ),
    "object with an owner": (
        {
            "resources": {
                "groups": [{"name": "worker"}],
                "objects": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": "x", "ownerReferences": []},
                    }
                ],
            }
        },
        f"{O}.metadata.ownerReferences",
        "the SyncSet owns the object",
    ),
    "object elsewhere": (
        {
            "resources": {
                "groups": [{"name": "worker"}],
                "objects": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": "x", "namespace": "other"},
                    }
                ],
            }
        },
        f"{O}.metadata.namespace",
        "must be that of the SyncSet, default",
    ),
    "replay of itself": (
        {"generation": 3, "replay": {"generation": 3, "of": 3}},
        "spec.replay.of",
        "must be an earlier generation",
    ),
    "time": ({"killTimestamp": "soon"}, "spec.killTimestamp", "must be a time"),
    "flow": (
        {"flow": {"do": [{"x": {"each": "s", "of": "data.trades", "command": ["true"]}}]}},
        "spec.flow.do[0].x.of",
        "trades",
    ),
    "group of a step": (
        {"flow": {"do": [{"x": {"group": "gpu", "command": ["true"]}}]}},
        "spec.flow.do[0].x.group",
        "gpu",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_set_is_refused_with_its_path(case: str) -> None:
    spec, path, text = CASES[case]
    found = problems(**spec)
    assert path in found
    assert text in found[path]


def test_simple_set_is_valid() -> None:
    assert problems(**group(template=TEMPLATE), **data(SNAPSHOT), backend="pods") == {}


def test_names_leave_room_for_generation_and_largest_index() -> None:
    assert problems("r" * 44, **group()) == {}  # 44 and the 6 of `worker`
    found = problems("r" * 45, **group())
    assert "have 51 characters together; at most 50" in found[f"{G}.name"]


def update(**changes: Any) -> dict[str, str]:
    def made(**spec: Any) -> sync_set.SyncSet:
        body = {**group(replicas=2, min=1, elastic={"max": 4}), "flow": FLOW, **spec}
        return sync_set.SyncSet(
            metadata=meta.ObjectMeta(name="risk"), spec=msgspec.convert(body, sync_set.SyncSetSpec)
        )

    return dict(sync_set_validation.validate_sync_set_update(made(), made(**changes)))


FLOW = {"do": [{"x": {"command": ["true"]}}]}
OTHER = {"do": [{"x": {"command": ["false"]}}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"suspend": True},
        {"priority": 1},
        {"deadlineSeconds": 5},
        {"keep": {"generations": 1}},
        {"killTimestamp": "2026-01-02T03:04:05Z"},
        group(replicas=4, min=1, elastic={"max": 4}),
        {"generation": 2, "flow": OTHER},
        {"generation": 2, "replay": {"generation": 2, "of": 1}},
    ],
)
def test_mutable_fields_may_change(changes: dict[str, Any]) -> None:
    assert update(**changes) == {}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"flow": OTHER}, "spec.flow"),
        ({"backend": "local"}, "spec.backend"),
        ({"replay": {"generation": 2, "of": 1}}, "spec.replay"),
        (data(SNAPSHOT), "spec.data"),
        (group(replicas=2, min=2, elastic={"max": 4}), "spec.resources"),
        (group(replicas=2, min=1), "spec.resources"),
    ],
)
def test_other_fields_are_immutable_within_a_generation(changes: dict[str, Any], path: str) -> None:
    assert "cannot be changed within a generation" in update(**changes)[path]


@pytest.mark.parametrize(
    ("started", "generation", "refused"),
    [
        (None, 1, set()),
        ("2026-01-02T03:04:05Z", 1, {"spec.priority"}),
        ("2026-01-02T03:04:05Z", 0, set()),
    ],
)
def test_priority_may_change_until_the_flow_starts(
    started: str | None, generation: int, refused: set[str]
) -> None:
    body = {**group(), "flow": FLOW}
    status = sync_set.SyncSetStatus(generation=generation, start_time=started)
    old, new = (
        sync_set.SyncSet(
            metadata=meta.ObjectMeta(name="x"),
            spec=msgspec.convert({**body, "priority": priority}, sync_set.SyncSetSpec),
            status=status,
        )
        for priority in (0, 5)
    )
    found = dict(sync_set_validation.validate_sync_set_update(old, new))
    assert found.keys() == refused


def test_generation_only_rises() -> None:
    body = {**group(), "flow": FLOW}
    old = msgspec.convert({**body, "generation": 2}, sync_set.SyncSetSpec)
    new = msgspec.convert(body, sync_set.SyncSetSpec)
    sets = [sync_set.SyncSet(metadata=meta.ObjectMeta(name="x"), spec=s) for s in (old, new)]
    found = dict(sync_set_validation.validate_sync_set_update(*sets))
    assert found == {"spec.generation": "may only rise, it was 2"}


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"run": 2}, {}),
        ({"run": 2}, {}, {"spec.run": "may only rise within a generation, it was 2"}),
        ({"run": 2}, {"generation": 2}, {}),
    ],
)
def test_run_only_rises_within_a_generation(
    before: dict[str, Any], after: dict[str, Any], refused: dict[str, str]
) -> None:
    body = {**group(), "flow": FLOW}
    specs = (msgspec.convert({**body, **given}, sync_set.SyncSetSpec) for given in (before, after))
    old, new = (sync_set.SyncSet(metadata=meta.ObjectMeta(name="x"), spec=s) for s in specs)
    assert dict(sync_set_validation.validate_sync_set_update(old, new)) == refused
