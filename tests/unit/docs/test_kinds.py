"""docs/reference/kinds.md describes every field as the structs and CRDs define it."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from kilnwork.api import (
    crd,
    data_pond,
    job,
    job_config,
    kinds,
    resource,
    sync_set,
    task,
    task_claim,
    task_cluster,
)
from support import pages

PAGE = (pages.DOCS / "reference" / "kinds.md").read_text()
NONE = "—"

STRUCTS = {
    "Task": (task.TaskSpec, task.TaskStatus),
    "TaskCluster": (task_cluster.TaskClusterSpec, task_cluster.TaskClusterStatus),
    "TaskClaim": (task_claim.TaskClaimSpec, task_claim.TaskClaimStatus),
    "DataPond": (data_pond.DataPondSpec, data_pond.DataPondStatus),
    "Job": (job.JobSpec, job.JobStatus),
    "JobConfig": (job_config.JobConfigSpec, job_config.JobConfigStatus),
    "SyncSet": (sync_set.SyncSetSpec, sync_set.SyncSetStatus),
}

ELSEWHERE = {
    "template.taskTemplate": "[spec of a Task](#spec)",
    "template.task.template": "`taskTemplate`",
    "template.hooks[].taskTemplate": "`taskTemplate`",
    "template.finalizer.taskTemplate": "`taskTemplate`",
    "template.spec": "[`spec.template` of a Job](#job)",
}
"""Objects whose fields the page has in another place, and how their row says so."""

OF_OTHERS = ("v1", "batch/", "rbac.authorization.k8s.io/")
"""Kinds of Kubernetes; tests/cluster applies what pages show of them, but for a CronJob."""

MANIFESTS = [
    pytest.param(manifest, id=f"{path.name}: {manifest['kind']} {manifest['metadata']['name']}")
    for path in pages.every()
    for block in pages.blocks(path.read_text(), "yaml")
    for manifest in yaml.safe_load_all(block)
    if "kind" in manifest  # what is to be put into one has none
    if not manifest["apiVersion"].startswith(OF_OTHERS)
]


def part(kind: str, name: str) -> list[pages.Row]:
    """Return the table below `## kind`, `### name`."""
    return pages.table(pages.sections(pages.sections(PAGE, 2)[kind], 3)[name])


def version(kind: str) -> dict[str, Any]:
    known = next(k for k in kinds.OURS if k.kind == kind)
    found: dict[str, Any] = crd.definition(known)["spec"]["versions"][0]
    return found


def fields(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field of a schema by its dotted path; for conditions only the list itself."""
    for name, node in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, node
        if name == "conditions" or path in ELSEWHERE:
            continue
        if node.get("type") == "array":
            yield from fields(node["items"], f"{path}[].")
        else:
            yield from fields(node, f"{path}.")


def type_text(node: dict[str, Any]) -> str:
    """Return the type of a schema node as the page writes it."""
    kind = node.get("type", "any JSON")
    if kind == "array":
        of = type_text(node["items"])
        return f"list of {of}s" if not of.endswith(("y", "JSON")) else f"list of {of}"
    if kind == "string":
        if node.get("format") == "date-time":
            return "time"
        return "name" if node.get("maxLength") == 253 else "string"
    if kind in ("integer", "number"):
        return f"{kind}{_bounds(node)}"
    return str(kind)


def _bounds(node: dict[str, Any]) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is None:
        return ""
    if node.get("exclusiveMinimum"):
        return f" above {low}"
    return f" from {low}" if high is None else f", {low} to {high}"


def defaults(struct: Any, prefix: str = "") -> dict[str, str]:
    """Return every field of a struct by its dotted path, with its default as the page writes it."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.encode_name}"
        inner = _struct_in(field.type)
        is_list = inner is not None and "tuple" in str(field.type)
        found[path] = _default(field, whole=inner is not None)
        if inner is not None and path not in ELSEWHERE:
            found |= defaults(inner, f"{path}[]." if is_list else f"{path}.")
    return found


def _struct_in(type_: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next(filter(None, map(_struct_in, getattr(type_, "__args__", ()))), None)


def _default(field: Any, *, whole: bool) -> str:
    if field.required:
        return "required"
    if whole or field.default in (None, "", (), msgspec.NODEFAULT):
        return NONE
    return msgspec.json.encode(field.default).decode().strip('"')


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_spec_field_has_its_type_and_default(kind: str) -> None:
    schema = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    expected = defaults(STRUCTS[kind][0])
    rows = {row.key: (row.cells[1], row.cells[2]) for row in part(kind, "Spec")}
    assert rows == {path: (type_text(node), expected[path]) for path, node in fields(schema)}, (
        "kinds.md, spec: field → (type, default)"
    )


@pytest.mark.parametrize("kind", ["Job", "JobConfig"])
def test_fields_described_elsewhere_have_a_link(kind: str) -> None:
    meanings = {row.key: row.cells[3] for row in part(kind, "Spec")}
    found = {path: where for path, where in ELSEWHERE.items() if path in meanings}
    assert found
    assert all(where in meanings[path] for path, where in found.items())


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_status_field_has_its_type(kind: str) -> None:
    schema = version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]
    rows = {row.key: row.cells[1] for row in part(kind, "Status")}
    assert rows == {path: type_text(node) for path, node in fields(schema)}


def test_task_object_has_only_data() -> None:
    properties = version("TaskObject")["schema"]["openAPIV3Schema"]["properties"]
    assert properties.keys() - {"apiVersion", "kind", "metadata"} == {"data"}


@pytest.mark.parametrize("kind", [kind.kind for kind in kinds.OURS])
def test_every_column_is_listed_with_its_condition(kind: str) -> None:
    rows = [row.cells for row in part(kind, "Columns")]
    columns = version(kind)["additionalPrinterColumns"]
    shown = {0: "always", 1: "-o wide"}
    assert rows == [(c["name"], c["jsonPath"], shown[c.get("priority", 0)]) for c in columns]


@pytest.mark.parametrize("kind", kinds.OURS, ids=lambda kind: str(kind.kind))
def test_every_kind_has_its_names(kind: resource.Resource) -> None:
    rows = pages.table(PAGE.partition("\n## ")[0])
    assert (f"[{kind.kind}](#{kind.singular})", kind.plural, kind.short_names[0]) in [
        row.cells[:3] for row in rows
    ]


def test_every_state_and_selectable_field_is_named() -> None:
    state = next(row for row in part("Task", "Status") if row.key == "state")
    assert all(f"`{one}`" in state.cells[2] for one in task.State)
    for field in version("Task")["selectableFields"]:
        assert f"`{field['jsonPath'].lstrip('.')}`" in PAGE


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifests_in_the_pages_can_be_applied(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == kinds.TASKS.api_version
    if manifest["kind"] in STRUCTS:
        msgspec.convert(manifest["spec"], STRUCTS[manifest["kind"]][0])
