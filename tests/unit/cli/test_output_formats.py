"""Text for people and machines."""

from typing import Any

import pytest
import yaml

from kilnwork.api import api_resources, kinds, task
from kilnwork.cli import output_formats


def test_columns_are_aligned_without_trailing_space() -> None:
    lines = output_formats.columns(
        ["NAME", "STATE", "X"], [["a", "Running", ""], ["long-name", None, 3]]
    )
    assert lines == [
        "NAME        STATE     X",
        "a           Running",
        "long-name   <none>    3",
    ]


def test_cells_are_written_as_kubectl_does() -> None:
    values = [None, True, False, "a\nb", 7, 1.5, ""]
    assert [output_formats.cell(value) for value in values] == [
        "<none>", "true", "false", "a\\nb", "7", "1.5", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "ab…ef"), ("abcdef", 4, "ab…f"), ("ab", 1, "…")],
)
def test_long_text_loses_its_middle(text: str, width: int, wanted: str) -> None:
    assert output_formats.cut(text, width) == wanted
    assert len(wanted) <= width


def test_columns_are_cut_in_order_until_they_fit() -> None:
    header, row = ["NAME", "STATE", "X"], ["n" * 30, "s" * 20, "x"]
    fitting = output_formats.fitted(header, [row], width=57, flexible=("NAME", "STATE"))
    assert fitting == output_formats.columns(header, [row])
    cut = output_formats.fitted(header, [row], width=47, flexible=("NAME", "STATE"))
    assert cut[1] == f"{'n' * 10}…{'n' * 9}   {'s' * 20}   x"
    both = output_formats.fitted(header, [row], width=1, flexible=("NAME", "STATE"))
    assert both[1] == "nnnnnn…nnnnn   ssssss…sssss   x"


def test_times_are_shortened() -> None:
    assert [output_formats.took(s) for s in (0, 0.0521, 0.9996, 3.44, 9.96, 119, 120, 8000)] == [
        "0ms", "52ms", "1.0s", "3.4s", "10s", "119s", "2m", "2h",
    ]  # fmt: skip
    assert [output_formats.short_time(s) for s in (-1, 5, 130, 200_000)] == ["0s", "5s", "2m", "2d"]
    edges = (119, 120, 7199, 7200, 14_399, 172_799, 172_800)
    assert [output_formats.short_time(s) for s in edges] == [
        "119s", "2m", "119m", "2h", "3h", "47h", "2d",
    ]  # fmt: skip
    assert [output_formats.took(s) for s in (-1, 0.9994, 0.9995, 9.949, 9.951)] == [
        "0ms", "999ms", "1.0s", "9.9s", "10s",
    ]  # fmt: skip


def test_yaml_is_sorted_and_keeps_text_as_text() -> None:
    text = output_formats.yaml_text({"b": {"x": "1\n2\n"}, "a": ["true", "0644", 1, None]})
    assert text == "a:\n- 'true'\n- '0644'\n- 1\n- null\nb:\n  x: |\n    1\n    2\n"


def test_yaml_keeps_the_order_of_keys_if_asked() -> None:
    value = {"b": [1], "a": {}}
    assert output_formats.yaml_text(value) == "a: {}\nb:\n- 1\n"
    assert output_formats.yaml_text(value, sort_keys=False) == "b:\n- 1\na: {}\n"


def test_yaml_writes_text_of_any_language_and_repeats_shared_values() -> None:
    shared = ["é"]
    assert output_formats.yaml_text({"a": shared, "b": shared}) == "a:\n- é\nb:\n- é\n"


@pytest.mark.parametrize("text", [" a\nb", "\na\nb"])
def test_yaml_with_a_leading_blank_is_read_back_unchanged(text: str) -> None:
    written = output_formats.yaml_text({"x": text})
    assert "|" not in written
    assert yaml.safe_load(written) == {"x": text}


def test_yaml_writes_enum_states_as_text() -> None:
    text = output_formats.yaml_text({task.State.FAILED: 1, "state": task.State.SUCCESS})
    assert text == "Failed: 1\nstate: Success\n"


def test_json_is_sorted_and_indented() -> None:
    assert output_formats.json_text({"b": 1, "a": [1]}) == (
        '{\n    "a": [\n        1\n    ],\n    "b": 1\n}\n'
    )


def managed(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "managedFields": [{"manager": "kiln"}]}, "spec": {"a": 1}}


@pytest.mark.parametrize("form", ["json", "yaml", None])
def test_document_leaves_out_managed_fields(form: str | None) -> None:
    text = output_formats.document(managed("x"), form)
    assert yaml.safe_load(text) == {"metadata": {"name": "x"}, "spec": {"a": 1}}
    assert text.startswith("{") == (form == "json")
    assert yaml.safe_load(
        output_formats.document(managed("x"), form, managed_fields=True)
    ) == managed("x")


def test_document_leaves_out_managed_fields_of_a_list() -> None:
    listed = output_formats.object_list([managed("x"), {"metadata": {"name": "y"}}, {"spec": {}}])
    found = yaml.safe_load(output_formats.document(listed, "yaml"))
    assert found["items"] == [
        {"metadata": {"name": "x"}, "spec": {"a": 1}}, {"metadata": {"name": "y"}}, {"spec": {}},
    ]  # fmt: skip
    assert listed["items"][0] == managed("x")  # the given objects are unchanged
    kept = yaml.safe_load(output_formats.document(listed, "yaml", managed_fields=True))
    assert kept["items"][0] == managed("x")


def test_objects_are_listed_as_kubectl_does() -> None:
    assert output_formats.object_list([{"a": 1}]) == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"a": 1}],
        "metadata": {"resourceVersion": ""},
    }


def test_document_without_metadata_is_unchanged() -> None:
    assert output_formats.document([1], "json") == "[\n    1\n]\n"
    assert yaml.safe_load(output_formats.document({"metadata": "text", "items": 1}, None)) == {
        "metadata": "text", "items": 1,
    }  # fmt: skip


def test_full_name_has_kind_group_and_name() -> None:
    assert output_formats.full_name(kinds.TASKS, "x") == "task.kilnwork.dev/x"
    assert output_formats.full_name(api_resources.PODS, "x") == "pod/x"
