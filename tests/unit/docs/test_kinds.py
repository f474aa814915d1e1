"""docs/reference/kinds.md: its tables are generated, its prose names the rest of each kind."""

from typing import Any

import msgspec
import pytest
import yaml

from kilnwork.api import api_resources, kinds, kinds_reference, task
from support import pages

PAGE = (pages.DOCS / "reference" / "kinds.md").read_text()

FOREIGN_API_VERSIONS = ("v1", "batch/", "rbac.authorization.k8s.io/")
"""Kinds of Kubernetes itself. tests/cluster applies the manifests of these, except for a
CronJob."""

MANIFESTS = [
    pytest.param(manifest, id=f"{path.name}: {manifest['kind']} {manifest['metadata']['name']}")
    for path in pages.all_pages()
    for block in pages.blocks(path.read_text(), "yaml")
    for manifest in yaml.safe_load_all(block)
    if "kind" in manifest  # fragments of a manifest have no kind
    if not manifest["apiVersion"].startswith(FOREIGN_API_VERSIONS)
]


def rows_of(kind: str, name: str) -> list[pages.Row]:
    """Return the rows of the table below `## kind`, `### name`."""
    return pages.table(pages.sections(pages.sections(PAGE, 2)[kind], 3)[name])


def test_tables_are_current() -> None:
    assert kinds_reference.render(PAGE) == PAGE, "run `make docs`"


@pytest.mark.parametrize("kind", kinds_reference.STRUCTS)
def test_spec_table_lists_every_field_with_type_and_default(kind: str) -> None:
    node = kinds_reference.version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    expected = kinds_reference.defaults(kinds_reference.STRUCTS[kind][0])
    rows = {row.key: (row.cells[1], row.cells[2]) for row in rows_of(kind, "Spec")}
    assert rows == {
        path: (kinds_reference.type_text(below), expected[path])
        for path, below in kinds_reference.fields(node)
    }


@pytest.mark.parametrize("kind", ["Job", "JobConfig"])
def test_fields_described_elsewhere_refer_to_that_table(kind: str) -> None:
    meanings = {row.key: row.cells[3] for row in rows_of(kind, "Spec")}
    found = {
        path: where
        for path, where in kinds_reference.DESCRIBED_ELSEWHERE.items()
        if path in meanings
    }
    assert found
    assert all(where in meanings[path] for path, where in found.items())


@pytest.mark.parametrize("kind", kinds_reference.STRUCTS)
def test_status_table_lists_every_field_with_type(kind: str) -> None:
    node = kinds_reference.version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]
    rows = {row.key: row.cells[1] for row in rows_of(kind, "Status")}
    assert rows == {
        path: kinds_reference.type_text(below) for path, below in kinds_reference.fields(node)
    }


def test_task_object_has_only_data() -> None:
    properties = kinds_reference.version("TaskObject")["schema"]["openAPIV3Schema"]["properties"]
    assert properties.keys() - {"apiVersion", "kind", "metadata"} == {"data"}


@pytest.mark.parametrize("kind", [kind.kind for kind in kinds.OURS])
def test_columns_table_lists_every_column_and_its_option(kind: str) -> None:
    rows = [row.cells for row in rows_of(kind, "Columns")]
    columns = kinds_reference.version(kind)["additionalPrinterColumns"]
    shown = {0: "always", 1: "-o wide"}
    assert rows == [(c["name"], c["jsonPath"], shown[c.get("priority", 0)]) for c in columns]


@pytest.mark.parametrize("kind", kinds.OURS, ids=lambda kind: str(kind.kind))
def test_first_table_has_plural_and_short_name_of_every_kind(kind: api_resources.Resource) -> None:
    rows = pages.table(PAGE.partition("\n## ")[0])
    assert (f"[{kind.kind}](#{kind.singular})", kind.plural, kind.short_names[0]) in [
        row.cells[:3] for row in rows
    ]


def test_task_states_and_selectable_fields_are_named() -> None:
    state = next(row for row in rows_of("Task", "Status") if row.key == "state")
    assert all(f"`{one}`" in state.cells[2] for one in task.State)
    for field in kinds_reference.version("Task")["selectableFields"]:
        assert f"`{field['jsonPath'].lstrip('.')}`" in PAGE


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifests_in_pages_are_valid(manifest: dict[str, Any]) -> None:
    assert manifest["apiVersion"] == kinds.TASKS.api_version
    if manifest["kind"] in kinds_reference.STRUCTS:
        msgspec.convert(manifest["spec"], kinds_reference.STRUCTS[manifest["kind"]][0])
