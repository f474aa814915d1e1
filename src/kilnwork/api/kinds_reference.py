"""Tables of docs/reference/kinds.md, generated from the schemas of our kinds.

`python -m kilnwork.api.kinds_reference docs/reference/kinds.md` rewrites each table between its
pair of markers; the prose around them is written by hand. Used by `make docs` and by the test that
the page is current. Not `kubectl explain`, which reads the same descriptions from the CRDs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import (
    crd,
    data_pond,
    job,
    job_config,
    kinds,
    schema_generation,
    sync_set,
    task,
    task_claim,
    task_cluster,
)

NONE = "—"
"""Shown for a field without a default."""

STRUCTS = {
    "Task": (task.TaskSpec, task.TaskStatus),
    "TaskCluster": (task_cluster.TaskClusterSpec, task_cluster.TaskClusterStatus),
    "TaskClaim": (task_claim.TaskClaimSpec, task_claim.TaskClaimStatus),
    "DataPond": (data_pond.DataPondSpec, data_pond.DataPondStatus),
    "Job": (job.JobSpec, job.JobStatus),
    "JobConfig": (job_config.JobConfigSpec, job_config.JobConfigStatus),
    "SyncSet": (sync_set.SyncSetSpec, sync_set.SyncSetStatus),
}
"""Structs of spec and status by kind; TaskObject has neither."""

DESCRIBED_ELSEWHERE = {
    "template.taskTemplate": "[spec of a Task](#spec)",
    "template.task.template": "`taskTemplate`",
    "template.hooks[].taskTemplate": "`taskTemplate`",
    "template.finalizer.taskTemplate": "`taskTemplate`",
    "template.spec": "[`spec.template` of a Job](#job)",
}
"""Objects whose fields are in another table, and the reference to it."""

REFERENCES = {
    ("Task", "image"): "[images](#images)",
    ("Task", "env[].valueFrom"): "[environment](worker-contract.md#environment)",
    ("Task", "external"): "[write your own executor](../how-to/write-your-own-executor.md)",
    ("Task", "function"): "[functions](http.md#functions)",
    ("Task", "http"): "[HTTP requests](http.md)",
    ("Task", "pod"): "[executors](executors.md)",
    ("Task", "workflow"): "[workflows](executors.md#a-task-that-is-a-workflow)",
    ("Task", "customResource"): "[objects](executors.md#a-task-that-is-an-object-of-any-kind)",
    ("Task", "customResource.result"): "[rules](rules-and-variables.md)",
    ("Task", "reason"): "[reasons](reasons.md)",
    ("Task", "conditions"): "[conditions](#conditions)",
    ("TaskCluster", "runtime"): "[ephemeral containers](../explanation/ephemeral-containers.md)",
    ("TaskClaim", "reason"): "[reasons](reasons.md)",
    ("Job", "reason"): "[reasons](reasons.md)",
    ("JobConfig", "schedule.cron"): "[cron](cron.md)",
    ("JobConfig", "option"): "[options](options.md)",
    ("SyncSet", "flow"): "[flows](flows.md)",
    ("SyncSet", "reason"): "[reasons](reasons.md)",
}
"""Pages with more about a field, by kind and path."""

_LEFT_OUT = " Its fields are those of "
"""Start of the sentence with which a schema refers to another object; see `crd`."""

_SHOWN = {0: "always", 1: "`-o wide`"}
"""When kubectl shows a column, by its priority."""


def tables() -> dict[str, str]:
    """Return the generated tables by name, such as `Task spec`, without their markers."""
    found: dict[str, str] = {}
    for kind in (known.kind for known in kinds.OURS):
        if kind in STRUCTS:
            found[f"{kind} spec"] = "\n".join(_spec_lines(kind))
            found[f"{kind} status"] = "\n".join(_status_lines(kind))
        found[f"{kind} columns"] = "\n".join(_column_lines(kind))
    return found


def render(page: str) -> str:
    """Return `page` with the current tables. Raises ValueError if a marker is missing."""
    for name, table in tables().items():
        begin, end = markers(name)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page has no table {name!r}: add the lines {begin!r} and {end!r}")
        page = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return page


def markers(name: str) -> tuple[str, str]:
    """Return the comments before and after a table."""
    return (
        f"<!-- {name}: written by `make docs` from kilnwork.api.kinds_reference -->",
        f"<!-- end of {name} -->",
    )


def version(kind: str) -> schema_generation.Schema:
    """Return the only version in the CustomResourceDefinition of a kind."""
    known = next(known for known in kinds.OURS if known.kind == kind)
    found: schema_generation.Schema = crd.definition(known)["spec"]["versions"][0]
    return found


def fields(
    node: schema_generation.Schema, prefix: str = ""
) -> Iterator[tuple[str, schema_generation.Schema]]:
    """Yield every field of a schema with its dotted path.

    `[]` in a path steps into the items of a list. Fields of conditions are omitted, and those of
    objects that are `DESCRIBED_ELSEWHERE`.
    """
    for name, below in node.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, below
        if name == "conditions" or path in DESCRIBED_ELSEWHERE:
            continue
        if below.get("type") == "array":
            yield from fields(below["items"], f"{path}[].")
        else:
            yield from fields(below, f"{path}.")


def type_text(node: schema_generation.Schema) -> str:
    """Return the type of a schema node, with its bounds."""
    kind = node.get("type", "any JSON")
    if kind == "array":
        item = type_text(node["items"])
        return f"list of {item}s" if not item.endswith(("y", "JSON")) else f"list of {item}"
    if kind == "string":
        if node.get("format") == "date-time":
            return "time"
        return "name" if node.get("maxLength") == 253 else "string"
    if kind in ("integer", "number"):
        return f"{kind}{_bounds(node)}"
    return str(kind)


def defaults(struct: Any, prefix: str = "") -> dict[str, str]:
    """Return the default of every field of a struct by dotted path, as the tables show it.

    They are read from the structs because a schema leaves out defaults such as false and 0.
    """
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.encode_name}"
        inner = _struct_in(field.type)
        is_list = inner is not None and "tuple" in str(field.type)
        found[path] = _default(field, is_struct=inner is not None)
        if inner is not None and path not in DESCRIBED_ELSEWHERE:
            found |= defaults(inner, f"{path}[]." if is_list else f"{path}.")
    return found


def _spec_lines(kind: str) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    default = defaults(STRUCTS[kind][0])
    for path, node in _fields_of(kind, "spec"):
        meaning = _meaning(kind, path, node)
        yield f"| `{path}` | {type_text(node)} | {default[path]} | {meaning} |"


def _status_lines(kind: str) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for path, node in _fields_of(kind, "status"):
        yield f"| `{path}` | {type_text(node)} | {_meaning(kind, path, node)} |"


def _column_lines(kind: str) -> Iterator[str]:
    yield "| column | shows | with |"
    yield "|---|---|---|"
    for column in version(kind)["additionalPrinterColumns"]:
        shown = _SHOWN[column.get("priority", 0)]
        yield f"| `{column['name']}` | `{column['jsonPath']}` | {shown} |"


def _fields_of(kind: str, part: str) -> Iterator[tuple[str, schema_generation.Schema]]:
    return fields(version(kind)["schema"]["openAPIV3Schema"]["properties"][part])


def _meaning(kind: str, path: str, node: schema_generation.Schema) -> str:
    """Return the description of a field in one line, with references to other tables and pages."""
    text = " ".join(node.get("description", "").partition(_LEFT_OUT)[0].split())
    if path in DESCRIBED_ELSEWHERE:
        text += f" Fields: {DESCRIBED_ELSEWHERE[path]}."
    if (kind, path) in REFERENCES:
        text += f" See {REFERENCES[kind, path]}."
    return text.replace("|", "\\|")


def _bounds(node: schema_generation.Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is None:
        return ""
    if node.get("exclusiveMinimum"):
        return f" above {low}"
    return f" from {low}" if high is None else f", {low} to {high}"


def _struct_in(type_: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next(filter(None, map(_struct_in, getattr(type_, "__args__", ()))), None)


def _default(field: Any, *, is_struct: bool) -> str:
    if field.required:
        return "required"
    if is_struct or field.default in (None, "", (), msgspec.NODEFAULT):
        return NONE
    return msgspec.json.encode(field.default).decode().strip('"')


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text()))
