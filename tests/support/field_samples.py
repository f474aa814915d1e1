"""Sample objects with each field of a Pod and of our kinds: valid, and as small as possible."""

import copy
from collections.abc import Iterator
from typing import Any

from kilnwork.api import api_resources, crd, kinds
from kilnwork.controlplane.apiserver import builtin_schemas

POD_SPEC = {"$ref": f"{builtin_schemas.REFERENCE}io.k8s.api.core.v1.PodSpec"}

POD: dict[str, Any] = {
    "containers": [{"name": "main", "image": "label", "command": ["true"]}],
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
}
VOLUME = {"name": "x"}

OBJECTS: dict[str, dict[str, Any]] = {
    "Task": {"command": ["true"]},
    "TaskCluster": {},
    "TaskObject": {},
    "TaskClaim": {"executor": "x"},
    "DataPond": {},
    "Job": {"template": {"taskTemplate": {"command": ["true"]}}},
    "JobConfig": {
        "template": {"spec": {"taskTemplate": {"command": ["true"]}}},
        "concurrency": {"policy": "Forbid"},
    },
    "SyncSet": {
        "resources": {"groups": [{"name": "x"}]},
        "flow": {"do": [{"x": {"command": ["true"]}}]},
    },
}

TEMPLATES = {"Job": "spec.template", "JobConfig": "spec.template.spec"}
"""Where the template of a Job is."""

OPTION_TYPES = {
    "bool": "Bool",
    "select": "Select",
    "multi": "Multi",
    "date": "Date",
    "int": "Int",
    "float": "Float",
    "json": "JSON",
}
"""Types of options, except String, by the field that belongs to them."""

CONDITION = '.status.phase == "Succeeded"'
REQUEST = {"method": "GET", "url": "http://x/"}
FUNCTION = {"service": "x", "request": {"method": "GET"}}
FORM = {"mimeType": "multipart/form-data"}
WORK: dict[str, dict[str, Any]] = {
    "spec.call": {},
    "spec.pod": {},
    "spec.customResource": {
        "customResource": {
            "manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
            "result": {"successCondition": CONDITION},
        }
    },
    "spec.workflow": {"workflow": {"spec": {"entrypoint": "x"}}},
    "spec.workflow.manifest": {},
    "spec.http": {"http": {"request": REQUEST}},
    "spec.http.request.postData.params": {"http": {"request": {**REQUEST, "postData": FORM}}},
    "spec.http.response.runningCondition": {"http": {"request": REQUEST, "polling": {}}},
    "spec.function": {"function": FUNCTION},
    "spec.function.request.postData.params": {
        "function": {**FUNCTION, "request": {"method": "GET", "postData": FORM}}
    },
    "spec.function.cancel.request.postData.params": {
        "function": {**FUNCTION, "cancel": {"request": {"method": "GET", "postData": FORM}}}
    },
    "spec.function.response.runningCondition": {"function": {**FUNCTION, "polling": {}}},
    "spec.function.template": {"function": {"request": {"method": "GET"}}},
    "spec.function.callback": {"function": {**FUNCTION, "mode": "Callback"}},
    "spec.external": {},
}
"""Alternatives to a command, with the fields that they need; the last matching one is used."""

VALUES: dict[str, Any] = {
    "spec.activeDeadlineSeconds": 60,
    "spec.automountServiceAccountToken": False,
    "spec.dnsPolicy": "None",
    "spec.hostUsers": False,
    "spec.os.name": "windows",
    "spec.preemptionPolicy": "Never",
    "spec.priority": 5,
    "spec.restartPolicy": "OnFailure",
    "spec.schedulerName": "other",
    "spec.serviceAccount": "default",
    "spec.serviceAccountName": "default",
    "spec.terminationGracePeriodSeconds": 5,
    "spec.call.function": "package.module:name",
    "spec.pod.metadata": {"labels": {"x": "1"}},
    "spec.pod.spec": POD,
    "spec.customResource.manifest": WORK["spec.customResource"]["customResource"]["manifest"],
    "spec.customResource.result.jsonPath": "$.status",
    "spec.workflow.manifest": {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "x"},
        "spec": {"entrypoint": "x"},
    },
    "spec.workflow.metadata": {"labels": {"x": "1"}},
    "spec.workflow.apiVersion": "argoproj.io/v1alpha1",
    "spec.workflow.kind": "Workflow",
    "spec.http.request.url": REQUEST["url"],
    "spec.function.service": "x",
    "spec.function.template": {"spec": {"template": {}}},
    "spec.function.mode": "Sync",
    "[].request.url": "/",
    "[].postData._bodyBase64": "eA==",
    "[].response.format": "json",
    "[].response.resultJsonPath": "$.x",
    "[].polling.location": "$.x",
    "[].polling.cancelMethod": "DELETE",
    "[].successCondition": CONDITION,
    "[].failureCondition": CONDITION,
    "[].runningCondition": CONDITION,
    "spec.killTimestamp": "2026-01-02T03:04:05Z",
    "spec.startPolicy.startAfter": "2026-01-02T03:04:05Z",
    "spec.schedule.constraints.notBefore": "2026-01-02T03:04:05Z",
    "spec.schedule.constraints.notAfter": "2026-01-02T03:04:05Z",
    "spec.schedule.lastUpdated": "2026-01-02T03:04:05Z",
    "spec.schedule.cron.expression": "@daily",
    "spec.schedule.cron.expressions[]": "@daily",
    "spec.schedule.cron.timezone": "UTC",
    "spec.dependsOn[].name": "other",
    "spec.optionValues": {"x": 1},
    "spec.substitutions": {"option.x": "1"},
    "spec.template.metadata.annotations": {"x": "1"},
    "spec.template.metadata.labels": {"x": "1"},
    "[].completionStrategy": "AnySuccessful",
    "[].withResultOf.path": "$.x",
    "[].task.template": {"command": ["true"]},
    "[].hooks[].taskTemplate": {"command": ["true"]},
    "[].finalizer.taskTemplate": {"command": ["true"]},
    "[].hooks[].on[]": "Failed",
    "[].hooks[].phases[]": "Failed",
    "[].date.format": "YYYY",
    "[].bool.format": "OneZero",
    "spec.data.snapshots[].digest": f"sha256:{'0' * 64}",
    "spec.data.snapshots[].from": {"inline": {"x": "1"}},
    "spec.data.snapshots[].from.inline": {"x": "1"},
    "spec.data.snapshots[].shard.by": "files",
    "spec.data.snapshots[].shard.unit": "rows",
    "spec.flow.catch[].do[]": {"y": {"command": ["true"]}},
    "spec.flow.do": [{"x": {"command": ["true"]}}],
    "spec.flow.do[]": {"x": {"command": ["true"]}},
    "spec.flow.finally[]": {"y": {"command": ["true"]}},
    "spec.flow.result": "x.value",
    "spec.replay.generation": 2,
    "spec.resources.objects[]": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
    },
    "spec.resources.groups[].onPodFailed": "fail",
    "spec.resources.groups[].template": {"spec": {"containers": [{"name": "worker"}]}},
    "spec.strategy.rollingUpdate.maxSurge": 1,
    "spec.strategy.rollingUpdate.maxUnavailable": 1,
    "spec.outputType": "bytes",
    "[].retry.on[]": "timeout",
    "spec.inputs[].name": "x",
    "spec.path": "/data/x",
    "spec.capacity": "1Gi",
    "spec.scrubRate": "1Mi",
    "spec.highWatermark": 0.8,
    "spec.lowWatermark": 0.5,
    "spec.sources[].name": "x",
    "spec.sources[].uri": "https://x/",
    "spec.sources[].allowAddresses[]": "10.0.0.1",
    "[].procMount": "Unmasked",
    "[].seccompProfile.type": "RuntimeDefault",
    "[].supplementalGroupsPolicy": "Strict",
    "[].env[].name": "X",
    "[].image": "other",
    "[].targetContainerName": "main",
    "[].imagePullPolicy": "Never",
    "[].restartPolicy": "Always",
    "[].terminationMessagePath": "/x",
    "[].terminationMessagePolicy": "FallbackToLogsOnError",
    "[].mountPath": "/x",
    "[].recursiveReadOnly": "Enabled",
    "[].volumeMounts[].subPath": "sub",
}
"""Allowed values by path, or by the end of a path, that request something."""


def pod_fields() -> Iterator[str]:
    """Yield the path of every field that holds a value: `spec.containers[].image`."""
    yield from _leaves(POD_SPEC, "spec", ())


def _leaves(schema: dict[str, Any], path: str, inside: tuple[str, ...]) -> Iterator[str]:
    found = builtin_schemas.resolved(schema)
    name = str(schema.get("$ref") or schema.get("allOf") or "")
    if name and name in inside:
        return
    below = (*inside, name)
    if found.get("properties"):
        for field, child in found["properties"].items():
            yield from _leaves(child, f"{path}.{field}", below)
    elif found.get("type") == "array":
        yield from _leaves(found["items"], f"{path}[]", below)
    else:
        yield path


def pod_spec(path: str) -> dict[str, Any]:
    """Return a PodSpec with this field."""
    made = copy.deepcopy(POD)
    made["volumes"] = [copy.deepcopy(VOLUME)]
    _put(made, POD_SPEC, path, at="spec")
    for container in (*made["containers"], *made.get("initContainers", ())):
        container.update({k: v for k, v in POD["containers"][0].items() if k not in container})
    for position, container in enumerate(made.get("initContainers", ())):
        container["name"] = f"init-{position}"
    for volume in made["volumes"]:
        if len(volume) == 1:
            volume["emptyDir"] = {}
    return made


EPHEMERAL = "spec.ephemeralContainers[]"


def ephemeral_container(path: str) -> dict[str, Any]:
    """Return an ephemeral container with this field, for a Pod of `POD` and the volume `VOLUME`."""
    made = pod_spec(path)["ephemeralContainers"][0]
    return {"name": "e", "image": "label", "command": ["true"], **made}


def fields_of(kind: api_resources.Resource) -> Iterator[str]:
    """Yield the path of every field of a kind of ours that a user writes."""
    properties = _schema(kind)["properties"]
    for name in properties.keys() & {"spec", "data"}:
        yield from _leaves(properties[name], name, ())


def object_of(kind: api_resources.Resource, path: str) -> dict[str, Any]:
    """Return an object of a kind of ours with this field, without metadata."""
    if kind.kind in TEMPLATES:
        return {"spec": _job_spec(kind, path)}
    made: dict[str, Any] = {"spec": copy.deepcopy(OBJECTS[kind.kind])}
    if kind == kinds.TASKS:
        beside = [work for start, work in WORK.items() if path.startswith(start)]
        made["spec"] = copy.deepcopy(beside[-1]) if beside else made["spec"]
    if path == "spec.pod.metadata":
        made["spec"] = {"pod": {"spec": copy.deepcopy(POD)}}
    if path == "data":
        return {"data": [1]}
    if kind == kinds.SYNC_SETS:
        _fit_set(made["spec"], path)
    if path.startswith("spec.inputs[]") and not path.endswith((".object", ".task")):
        made["spec"]["inputs"] = [{"object": "x"}]
    _put(made["spec"], _schema(kind)["properties"]["spec"], path, at="spec")
    return made


def _fit_set(spec: dict[str, Any], path: str) -> None:
    """Add what this field needs to be valid to the spec of a SyncSet."""
    snapshot: dict[str, Any] = {"name": "x", "from": {"inline": {"x": "1"}}}
    if path.startswith("spec.data.snapshots[].from.") and not path.endswith(".inline"):
        snapshot["from"] = {} if path.endswith((".source", ".uri", ".files")) else {"source": "x"}
    if ".from.output" in path:
        snapshot["from"] = {"output": {"set": "x", "name": "x"}}
    if path.startswith("spec.data.outputs"):
        spec["data"] = {"outputs": [{"name": "x", "step": "x"}]}
    if path.startswith("spec.data.snapshots[].deliver") or "replicasOf" in path or "near" in path:
        snapshot["shard"] = {"by": "files"}
    if "snapshots" in path or "replicasOf" in path or "near" in path:
        spec["data"] = {"snapshots": [snapshot]}
    if path.endswith("shard.key"):
        snapshot["shard"] = {"by": "hash", "count": 1}
    if path.endswith("shard.unit"):
        snapshot["shard"] = {"by": "range", "count": 1}
    if path.endswith("shard.patterns[]"):
        snapshot["shard"] = {"by": "glob"}
    if path.endswith("nearMode"):
        spec["resources"]["groups"][0]["near"] = ["x"]
    if path == "spec.flow.catch[].causes[]":
        spec["flow"]["catch"] = [{"do": [{"y": {"command": ["true"]}}]}]
    if path.startswith("spec.replay."):
        spec["replay"] = {"generation": 2, "of": 1}


def _job_spec(kind: api_resources.Resource, path: str) -> dict[str, Any]:
    """Return the spec of a Job or JobConfig with this field."""
    at = TEMPLATES[kind.kind]
    spec = copy.deepcopy(OBJECTS[kind.kind])
    template = spec["template"] if kind == kinds.JOBS else spec["template"]["spec"]
    task, below = f"{at}.taskTemplate", path.removeprefix(f"{at}.")
    if path.startswith(f"{task}."):
        template["taskTemplate"] = object_of(kinds.TASKS, "spec" + path.removeprefix(task))["spec"]
        return spec
    if below.startswith("task."):
        template.clear()
    if below in ("parallelism.maxInFlight", "parallelism.completionStrategy"):
        template["parallelism"] = {"withCount": 1}
    if below == "parallelism.withResultOf.path":
        template["parallelism"] = {"withResultOf": {"task": "x"}}
    if below == "hooks[].taskTemplate":
        template["hooks"] = [{"phases": ["Failed"]}]
    if path.startswith("spec.schedule.") and "expression" not in path:
        spec["schedule"] = {"cron": {"expression": "@daily"}}
    if path.startswith("spec.option.options[]."):
        type_ = OPTION_TYPES.get(path.split(".")[3], "String")
        spec["option"] = {"options": [{"name": "x", "type": type_}]}
    _put(spec, _schema(kind)["properties"]["spec"], path, at="spec")
    return spec


def _schema(kind: api_resources.Resource) -> dict[str, Any]:
    version = crd.definition(kind)["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def _put(target: dict[str, Any], schema: dict[str, Any], path: str, *, at: str) -> None:
    """Set the field at `path` below `target` (which is at `at`), and the fields that it
    requires.
    """
    step, _, _ = path.removeprefix(f"{at}.").partition(".")
    name, is_list = step.removesuffix("[]"), step.endswith("[]")
    here = f"{at}.{step}"
    below = builtin_schemas.resolved(schema)["properties"][name]
    inner = builtin_schemas.resolved(below)
    if is_list:
        inner = builtin_schemas.resolved(inner["items"])
    if here == path:
        value = _value(inner, path)
        target[name] = [value] if is_list else value
        return
    made = (target.get(name) or [{}])[0] if is_list else target.get(name) or {}
    for field in inner.get("required", ()):
        if field not in made:
            made[field] = _value(inner["properties"][field], f"{here}.{field}")
    target[name] = [made] if is_list else made
    _put(made, inner, path, at=here)


def _value(schema: dict[str, Any], path: str) -> Any:
    for end, value in VALUES.items():
        if path == end or (end.startswith("[]") and path.endswith(end[2:])):
            return copy.deepcopy(value)
    found = builtin_schemas.resolved(schema)
    if "enum" in found:
        return found["enum"][0]
    match found.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return 1
        case "array":
            return [_value(found["items"], f"{path}[]")]
        case "object" if found.get("properties"):
            fields = found.get("required", ())
            return {f: _value(found["properties"][f], f"{path}.{f}") for f in fields}
        case "object":
            return {"x": _value(found.get("additionalProperties", {}), path)}
        case "string":
            return "x"
    return 1 if "int" in str(found.get("format", "")) else "1"
