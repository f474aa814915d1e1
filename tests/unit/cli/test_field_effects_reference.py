"""The page of fields: a table per kind, with each field once."""

import pytest

from kilnwork.api import field_support, kind_field_effects, kinds
from kilnwork.api.field_support import Effect
from kilnwork.cli import field_effects_reference
from kilnwork.controlplane.node import pod_field_effects

PAGE = field_effects_reference.page()


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (kinds.TASKS.kind, kind_field_effects.TASK),
        (kinds.TASK_CLUSTERS.kind, kind_field_effects.TASK_CLUSTER),
        (kinds.TASK_OBJECTS.kind, kind_field_effects.TASK_OBJECT),
        (kinds.TASK_CLAIMS.kind, kind_field_effects.TASK_CLAIM),
        (kinds.JOBS.kind, kind_field_effects.JOB),
        (kinds.JOB_CONFIGS.kind, kind_field_effects.JOB_CONFIG),
        (kinds.SYNC_SETS.kind, kind_field_effects.SYNC_SET),
        (kinds.DATA_PONDS.kind, kind_field_effects.DATA_POND),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kind_has_a_row_for_each_of_its_fields_in_order(
    kind: str, rows: tuple[field_support.Row, ...]
) -> None:
    lines = [line for line in section(kind).splitlines() if line.startswith("| `")]
    fields = [line.split("`")[1] for line in lines if "| field |" not in line]
    assert fields == sorted(row.path for row in rows)


def test_each_kind_has_a_section() -> None:
    titles = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    assert sorted(titles) == sorted([*kind_field_effects.TABLES, "Pod"])


def test_introduction_names_the_kinds_whose_objects_have_ignored_fields() -> None:
    sentence = PAGE.partition("`FieldsIgnored` of a ")[2].partition(", and")[0]
    ignored = {Effect.IGNORED, Effect.REFUSED}
    having = {
        kind
        for kind, rows in kind_field_effects.TABLES.items()
        if any(row.cluster in ignored for row in rows.values())
    }
    assert set(sentence.replace(",", "").replace(" or ", " ").split()) == having


def test_row_has_both_effects_and_the_reason() -> None:
    row = kind_field_effects.TASK[0]
    assert f"| `{row.path}` | {row.embedded} | {row.cluster} | {row.reason} |" in section("Task")


def test_fields_of_init_containers_are_those_of_containers() -> None:
    assert any(row.path.startswith("spec.initContainers[].") for row in pod_field_effects.ROWS)
    assert "| `spec.initContainers[]." not in PAGE
    assert "| `spec.containers[]." in PAGE


def test_fields_of_ephemeral_containers_are_shown_where_they_differ() -> None:
    shown = [row for row in pod_field_effects.ROWS if f"| `{row.path}` |" in section("Pod")]
    by_path = {row.path: row for row in shown}
    for path, row in by_path.items():
        same = by_path.get(path.replace("spec.ephemeralContainers[].", "spec.containers[]."))
        assert same is row or same is None or same.embedded is not row.embedded
