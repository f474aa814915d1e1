"""Findings of fields without effect, from the rows of a table."""

import pytest

from kilnwork.api import field_effects
from kilnwork.api.field_effects import Effect, Row, Side

ROWS = field_effects.table(
    [
        Row("spec.image", Effect.IGNORED, Effect.HONOURED, "a label"),
        Row("spec.items[].force", Effect.REFUSED, Effect.REFUSED, "never by force"),
        Row("spec.open", Effect.HONOURED, Effect.HONOURED, whole=True),
    ]
)


def paths(value: object, side: Side = Side.EMBEDDED) -> list[str]:
    return [found.path for found in field_effects.findings(ROWS, value, side)]


def test_a_field_is_found_on_the_side_where_it_has_no_effect() -> None:
    assert paths({"spec": {"image": "x"}}) == ["spec.image"]
    assert paths({"spec": {"image": "x"}}, Side.CLUSTER) == []


@pytest.mark.parametrize("value", [None, "", False, 0])
def test_values_that_ask_for_nothing_are_no_findings(value: object) -> None:
    assert paths({"spec": {"image": value, "items": [{"force": value}]}}) == []


def test_paths_have_the_position_in_a_list() -> None:
    assert paths({"spec": {"items": [{}, {"force": True}]}}) == ["spec.items[1].force"]


def test_a_row_for_the_whole_covers_all_below() -> None:
    assert field_effects.row_for(ROWS, "spec.open.a[].b") == ROWS["spec.open"]
    assert field_effects.row_for(ROWS, "spec.image.name") is None


def test_of_an_update_only_new_sentences_count() -> None:
    def find(obj: dict[str, object]) -> "list[field_effects.Finding]":
        return list(field_effects.findings(ROWS, obj, Side.EMBEDDED))

    new = {"spec": {"image": "x", "items": [{"force": True}]}}
    texts = list(field_effects.added(lambda o: iter(find(o)), new, {"spec": {"image": "y"}}))
    assert texts == ["spec.items[0].force: refused by nodes of kilnwork: never by force"]
    assert len(list(field_effects.added(lambda o: iter(find(o)), new, None))) == 2


def test_a_path_twice_is_refused() -> None:
    row = Row("spec.a", Effect.HONOURED, Effect.HONOURED)
    with pytest.raises(ValueError, match=r"spec\.a"):
        field_effects.table([row, row])
