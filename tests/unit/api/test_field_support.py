"""Findings of fields without effect, from the rows of a table."""

import pytest

from kilnwork.api import field_support
from kilnwork.api.field_support import Effect, Row, Side

ROWS = field_support.table(
    [
        Row("spec.image", Effect.IGNORED, Effect.HONOURED, "a label"),
        Row("spec.items[].force", Effect.REFUSED, Effect.REFUSED, "never by force"),
        Row("spec.open", Effect.HONOURED, Effect.HONOURED, whole=True),
    ]
)


def paths(value: object, side: Side = Side.EMBEDDED) -> list[str]:
    return [found.path for found in field_support.findings(ROWS, value, side)]


def test_field_is_reported_only_on_the_side_without_effect() -> None:
    assert paths({"spec": {"image": "x"}}) == ["spec.image"]
    assert paths({"spec": {"image": "x"}}, Side.CLUSTER) == []


@pytest.mark.parametrize("value", [None, "", False, 0])
def test_values_that_request_the_default_are_not_reported(value: object) -> None:
    assert paths({"spec": {"image": value, "items": [{"force": value}]}}) == []


def test_paths_contain_positions_in_lists() -> None:
    assert paths({"spec": {"items": [{}, {"force": True}]}}) == ["spec.items[1].force"]


def test_row_for_the_whole_covers_all_fields_below() -> None:
    assert field_support.row_for(ROWS, "spec.open.a[].b") == ROWS["spec.open"]
    assert field_support.row_for(ROWS, "spec.image.name") is None


def test_update_reports_only_new_sentences() -> None:
    def find(obj: dict[str, object]) -> "list[field_support.Finding]":
        return list(field_support.findings(ROWS, obj, Side.EMBEDDED))

    new = {"spec": {"image": "x", "items": [{"force": True}]}}
    texts = list(
        field_support.new_sentences(lambda o: iter(find(o)), new, {"spec": {"image": "y"}})
    )
    assert texts == ["spec.items[0].force: refused by nodes of kilnwork: never by force"]
    assert len(list(field_support.new_sentences(lambda o: iter(find(o)), new, None))) == 2


def test_duplicate_path_is_refused() -> None:
    row = Row("spec.a", Effect.HONOURED, Effect.HONOURED)
    with pytest.raises(ValueError, match=r"spec\.a"):
        field_support.table([row, row])
