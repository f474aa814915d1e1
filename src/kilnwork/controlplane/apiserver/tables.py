"""Lists as tables (meta.k8s.io/v1 Table), which `kubectl get` prints.

Used by `responses` and `resource_handler` (watches) when the client accepts `as=Table`. Cells of
built-in kinds follow k8s.io/kubernetes/pkg/printers/internalversion; cells of custom kinds come
from the columns of the definition. All columns are sent; the client hides columns with a priority
unless `-o wide` is given.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import builtin, human_durations, statuses, table_pods

Cells = Callable[[meta.JsonObject, float], list[Any]]
"""(object, now in seconds since the epoch) → the cells after Name; all cells for kube events."""

_INCLUDED = ("", "Metadata", "Object", "None")
_NONE = "<none>"
_UNKNOWN = "<unknown>"


def render(
    served: builtin.ServedResource,
    objects: Iterable[meta.JsonObject],
    *,
    now: float,
    include: str = "Metadata",
    columns: bool = True,
    list_metadata: meta.JsonObject | None = None,
) -> meta.JsonObject:
    """Return a Table with one row per object.

    `include` is the query parameter `includeObject`: None, Metadata or Object. `columns` is False
    for every item of a watch but the first.
    """
    if include not in _INCLUDED:
        raise statuses.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    definitions = [_definition(column) for column in served.columns] if columns else []
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata or {},
        "columnDefinitions": definitions,
        "rows": [_row(served, obj, now, include=include) for obj in objects],
    }


def _definition(column: builtin.PrinterColumn) -> meta.JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(
    served: builtin.ServedResource, obj: meta.JsonObject, now: float, *, include: str
) -> meta.JsonObject:
    row: meta.JsonObject = {"cells": _cells(served, obj, now)}
    if not served.custom and served.resource == api_resources.PODS:
        conditions = table_pods.conditions(obj)
        row |= {"conditions": conditions} if conditions else {}
    if include == "Object":
        row["object"] = obj
    elif include == "None":
        row["object"] = None
    else:
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row


def _cells(served: builtin.ServedResource, obj: meta.JsonObject, now: float) -> list[Any]:
    name = obj["metadata"].get("name", "")
    if served.custom:
        return [name, *(_custom_cell(c, obj, now) for c in served.columns[1:])]
    try:
        return _built_in_cells(served, obj, now)
    # One malformed status must not make the whole list fail.
    except (AttributeError, KeyError, TypeError, ValueError):
        return [name, *(None for _ in served.columns[1:])]


def _built_in_cells(served: builtin.ServedResource, obj: meta.JsonObject, now: float) -> list[Any]:
    """Return the cells of a built-in kind.

    Raises if the status, which is not validated, is malformed.
    """
    name = obj["metadata"].get("name", "")
    kind = served.resource.kind
    if kind == api_resources.EVENTS.kind:
        return _event(obj, now)
    cells = _BUILT_IN.get(kind)
    return [name, *(cells(obj, now) if cells else [human_durations.age(obj, now)])]


def _custom_cell(column: builtin.PrinterColumn, obj: meta.JsonObject, now: float) -> Any:
    """Return a cell like apiextensions' table convertor: the first match, in the column's type."""
    value = value_at(obj, column.json_path)
    if value is None:
        return None
    if column.type == "date":
        return human_durations.since(value, now)
    if column.type == "integer":
        return value if isinstance(value, int) else None
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    if column.type == "number":
        return value if isinstance(value, int | float) else None
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="deterministic").decode()
    return value if isinstance(value, str) else str(value)


_STEP = re.compile(
    r"""\.([A-Za-z_][\w-]*)|\[\?\(@\.(\w+)=="([^"]*)"\)\]|\[(\d+)\]|\['([^\]]+)'\]"""
)
_BETWEEN_NAMES = re.compile(r"'\s*,\s*'")


def value_at(obj: Any, path: str) -> Any:
    """Return the value at a column's JSONPath, or None when it is missing.

    Supports names, positions, `[?(@.x=="y")]`, and `['x','y']`, which selects the first name that
    exists.
    """
    for name, key, wanted, position, listed in _STEP.findall(path):
        if name:
            obj = obj.get(name) if isinstance(obj, dict) else None
        elif listed:
            fields = obj if isinstance(obj, dict) else {}
            values = (fields.get(one) for one in _BETWEEN_NAMES.split(listed))
            obj = next((one for one in values if one is not None), None)
        elif not isinstance(obj, list):
            return None
        elif key:
            obj = next((o for o in obj if isinstance(o, dict) and o.get(key) == wanted), None)
        else:
            obj = obj[int(position)] if int(position) < len(obj) else None
        if obj is None:
            return None
    return obj


def _namespace(obj: meta.JsonObject, now: float) -> list[Any]:
    return [(obj.get("status") or {}).get("phase", ""), human_durations.age(obj, now)]


def _node(obj: meta.JsonObject, now: float) -> list[Any]:
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else _ready_word(ready)]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    # Older form of the label.
    roles.add(labels.get("kubernetes.io/role", ""))
    info = status.get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        ",".join(words),
        ",".join(sorted(filter(None, roles))) or _NONE,
        human_durations.age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _ready_word(condition: meta.JsonObject) -> str:
    return "Ready" if condition.get("status") == "True" else "NotReady"


def _secret(obj: meta.JsonObject, now: float) -> list[Any]:
    return [obj.get("type", ""), len(obj.get("data") or ()), human_durations.age(obj, now)]


def _config_map(obj: meta.JsonObject, now: float) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [count, human_durations.age(obj, now)]


def _service_account(obj: meta.JsonObject, now: float) -> list[Any]:
    return [len(obj.get("secrets") or ()), human_durations.age(obj, now)]


def _lease(obj: meta.JsonObject, now: float) -> list[Any]:
    return [(obj.get("spec") or {}).get("holderIdentity") or "", human_durations.age(obj, now)]


def _role(obj: meta.JsonObject, _now: float) -> list[Any]:
    # These kinds show the timestamp itself and not an age, as in Kubernetes.
    return [obj["metadata"].get("creationTimestamp")]


def _role_binding(obj: meta.JsonObject, now: float) -> list[Any]:
    reference = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.setdefault(subject.get("kind", ""), []).append(name)
    return [
        f"{reference.get('kind')}/{reference.get('name')}",
        human_durations.age(obj, now),
        ", ".join(subjects["User"]),
        ", ".join(subjects["Group"]),
        ", ".join(subjects["ServiceAccount"]),
    ]


def _event(obj: meta.JsonObject, now: float) -> list[Any]:
    first = human_durations.since(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = human_durations.since(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count, series = obj.get("count") or 1, obj.get("series")
    if series:
        last, count = (
            human_durations.since(series.get("lastObservedTime"), now),
            series.get("count", count),
        )
    target = obj.get("involvedObject") or {}
    about = str(target.get("kind") or "").lower()
    if target.get("name"):
        about = f"{about}/{target['name']}"
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        about,
        target.get("fieldPath", ""),
        _event_source(obj),
        str(obj.get("message") or "").strip(),
        first,
        count,
        obj["metadata"].get("name", ""),
    ]


def _event_source(obj: meta.JsonObject) -> str:
    source = obj.get("source") or {}
    parts = [source.get("component") or obj.get("reportingComponent") or ""]
    host = source.get("host") or obj.get("reportingInstance")
    return ", ".join([*parts, host] if host else parts)


_BUILT_IN: dict[str, Cells] = {
    api_resources.NAMESPACES.kind: _namespace,
    api_resources.NODES.kind: _node,
    api_resources.PODS.kind: table_pods.cells,
    api_resources.SECRETS.kind: _secret,
    api_resources.CONFIG_MAPS.kind: _config_map,
    api_resources.SERVICE_ACCOUNTS.kind: _service_account,
    api_resources.LEASES.kind: _lease,
    api_resources.ROLES.kind: _role,
    api_resources.ROLE_BINDINGS.kind: _role_binding,
    "ClusterRole": _role,
    "ClusterRoleBinding": _role_binding,
    "CustomResourceDefinition": _role,
}
