"""Selectors: grammar and meaning of labels and fields."""

import pytest

from kilnwork.api import selectors

LABELS = {"app": "counter", "tier": "web", "n": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=counter", True),
        ("app==counter", True),
        ("app!=counter", False),
        ("app=counter,tier=db", False),
        ("app in (x, counter)", True),
        ("app notin (x)", True),
        ("missing notin (x)", True),
        ("missing!=x", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("n>4", True),
        ("n<4", False),
        ("app>4", False),
        ("app=", False),
        ("missing in (,a)", False),
    ],
)
def test_label_selector_matches(text: str, *, matches: bool) -> None:
    assert selectors.parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a=b=c", "a b", "a in x", "=", "a,", "a in (b", "-=b", "a=-", "n>x", "a,,b"]
)
def test_invalid_label_selector_names_the_position(text: str) -> None:
    with pytest.raises(selectors.SelectorError, match=r"found |Invalid value"):
        selectors.parse_labels(text)


def test_object_without_labels_matches_only_absence() -> None:
    assert selectors.parse_labels("!a").matches(None)
    assert not selectors.parse_labels("a").matches(None)


POD = {"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}, "status": {"ready": True, "n": 3}}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=x", True),
        ("metadata.name==x,spec.nodeName!=n1", False),
        ("spec.missing=", True),
        ("status.ready=true", True),
        ("status.n=3", True),
        ("metadata.name.deeper=", True),
    ],
)
def test_field_selector_matches(text: str, *, matches: bool) -> None:
    assert selectors.parse_fields(text).matches(POD) is matches


def test_field_selector_with_escapes() -> None:
    term = selectors.parse_fields(r"a.b=x\,y\=z").terms[0]
    assert (term.path, term.value) == ("a.b", "x,y=z")


def test_field_selector_without_operator_is_refused() -> None:
    with pytest.raises(selectors.SelectorError, match="can't understand 'a'"):
        selectors.parse_fields("a")


def test_exact_value_is_found_only_for_equality() -> None:
    chosen = selectors.parse_fields("metadata.name!=y,metadata.namespace=default")
    assert chosen.exact("metadata.name") is None
    assert chosen.exact("metadata.namespace") == "default"
