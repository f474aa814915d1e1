"""Options with a selector."""

import click
import pytest

from kilnwork.cli import selector_types


@pytest.mark.parametrize("text", ["app=web", " app=web ", "tier!=test", "env in (a,b)", "!app"])
def test_label_selector_is_taken_without_the_spaces_around_it(text: str) -> None:
    assert selector_types.LABEL_SELECTOR.convert(text, None, None) == text.strip()


@pytest.mark.parametrize(
    ("text", "said"), [("", "it is empty"), ("  ", "it is empty"), ("a b", "Write it as app=web")]
)
def test_invalid_selector_is_a_usage_error_with_an_example(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        selector_types.LABEL_SELECTOR.convert(text, None, None)


def test_field_selector_allows_only_comparisons() -> None:
    taken = selector_types.FIELD_SELECTOR.convert("status.phase!=Running", None, None)
    assert taken == "status.phase!=Running"
    with pytest.raises(click.BadParameter, match=r"metadata\.name=x"):
        selector_types.FIELD_SELECTOR.convert("a in (b)", None, None)
