"""Generator of docs/reference/fields.md from the field tables: `python -m
kilnwork.cli.field_effects_reference`.

Used by `make docs` and by the test that the page is current.
"""

import sys
from collections.abc import Iterable, Iterator

from kilnwork.api import field_support, kind_field_effects, kinds
from kilnwork.api.field_support import Row
from kilnwork.controlplane.node import pod_field_effects

_INTRODUCTION = """\
# What every field does

<!-- Written by `make docs` from the rows in `kind_field_effects` and `pod_field_effects` of the
source. -->

A field that is accepted is honoured, or reported with a warning. A row holds for all that is
below its field, unless another row names that. In the columns:

| word | means |
|---|---|
| honoured | it does what Kubernetes, or [kinds and fields](kinds.md), say of it |
| by the scheduler | the scheduler of the cluster honours it, before a node is concerned |
| checked | honoured where the node can; else the container waits: `CreateContainerConfigError` |
| no effect, warning | kept, and said so, see below |
| refused by the node | the Pod fails: `UnsupportedPod`. `kiln up` warns when it is written |
| refused | the API server refuses the write, and names the field |
| no effect | Kubernetes itself needs it or fills it in, so it is unknown who asked for it |

An ephemeral container with a field that the node refuses waits: `CreateContainerConfigError`.
Every refusal names the field. A value that asks for nothing special (`privileged: false`,
`dnsPolicy: ClusterFirst`) is no reason to warn. The API server of `kiln up` warns at the write,
with a header `Warning: 299`, which kubectl and `kiln` print. Other API servers cannot; so a
condition of the object says it too: `FieldsIgnored` of a TaskCluster, Job or JobConfig, and, with
a kube event, `kilnwork.dev/FieldsIgnored` of a Pod on a node of ours.
"""

_PODS = """\
## Pod

On nodes of ours Pods are processes. On a node with a kubelet every field is what Kubernetes says of
it. Fields of `containers` hold for `initContainers` too, and for `ephemeralContainers` but for what
has rows here.
"""


def page() -> str:
    """Return the text of docs/reference/fields.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for kind, rows in (
        (kinds.TASKS.kind, kind_field_effects.TASK),
        (kinds.TASK_CLUSTERS.kind, kind_field_effects.TASK_CLUSTER),
        (kinds.TASK_OBJECTS.kind, kind_field_effects.TASK_OBJECT),
        (kinds.TASK_CLAIMS.kind, kind_field_effects.TASK_CLAIM),
        (kinds.JOBS.kind, kind_field_effects.JOB),
        (kinds.JOB_CONFIGS.kind, kind_field_effects.JOB_CONFIG),
        (kinds.SYNC_SETS.kind, kind_field_effects.SYNC_SET),
        (kinds.DATA_PONDS.kind, kind_field_effects.DATA_POND),
    ):
        yield f"## {kind}\n"
        yield from _table(rows, "in a cluster")
    yield _PODS
    yield from _table(filter(_is_shown, pod_field_effects.ROWS), "`kiln node`")


def _is_shown(row: Row) -> bool:
    """Return whether a row of a field table is on the page.

    A row that says the same as that of `spec.containers[]` is not.
    """
    kind, _, field = row.path.partition("[].")
    if kind == "spec.ephemeralContainers":
        same = field_support.row_for(pod_field_effects.TABLE, f"spec.containers[].{field}")
        return same is None or same.embedded is not row.embedded
    return kind != "spec.initContainers"


def _table(rows: Iterable[Row], cluster: str) -> Iterator[str]:
    yield f"| field | `kiln up` | {cluster} | why, or how |"
    yield "|---|---|---|---|"
    for row in sorted(rows, key=lambda row: row.path):
        yield f"| `{row.path}` | {row.embedded} | {row.cluster} | {row.reason} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
