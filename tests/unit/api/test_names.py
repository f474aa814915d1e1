"""Names: what Kubernetes takes, what it refuses, and short forms of long ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import names


@pytest.mark.parametrize("text", ["a", "a-b", "0", "a" * 63])
def test_valid_label_is_accepted(text: str) -> None:
    assert names.is_dns_label(text)


@pytest.mark.parametrize("text", ["", "A", "-a", "a-", "a.b", "a" * 64, "a\n", "ä"])
def test_invalid_label_is_refused(text: str) -> None:
    assert not names.is_dns_label(text)


def test_subdomain_may_have_dots_and_253_characters() -> None:
    assert names.is_dns_subdomain("a.b-c.d")
    assert names.is_dns_subdomain("a" * 253)
    assert names.subdomain_problem("a" * 254) == "must be no more than 253 characters"
    assert "RFC 1123 subdomain" in (names.subdomain_problem("A") or "")
    assert not names.is_dns_subdomain("a..b")


@pytest.mark.parametrize("key", ["a", "A_b.c", "example.com/a", "kilnwork.dev/task"])
def test_valid_qualified_name_is_accepted(key: str) -> None:
    assert names.qualified_problem(key) is None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "name part must be non-empty"),
        ("/a", "prefix part must be non-empty"),
        ("A/a", "prefix part a lowercase RFC 1123 subdomain"),
        ("a/b/c", "a qualified name must consist"),
        ("a/-", "name part must consist"),
        ("a" * 64, "name part must be no more than 63 characters"),
    ],
)
def test_invalid_qualified_name_names_the_wrong_part(key: str, said: str) -> None:
    assert (names.qualified_problem(key) or "").startswith(said)


def test_label_value_may_be_empty() -> None:
    assert names.label_value_problem("") is None
    assert names.label_value_problem("My_value.1") is None
    assert names.label_value_problem("-x")
    assert names.label_value_problem("a" * 64)


def test_data_key_cannot_leave_its_directory() -> None:
    assert names.data_key_problem("key.name_1") is None
    for key in ("", ".", "..", "..x", "a/b", "a" * 254):
        assert names.data_key_problem(key) is not None


def test_environment_names_are_printable_without_equals() -> None:
    assert names.env_name_problem("A B-c") is None
    assert names.env_name_problem("A=b") is not None
    assert names.env_name_problem("") is not None


def test_path_segment() -> None:
    assert names.path_segment_problem("system:node") is None
    assert names.path_segment_problem("a/b") == "may not contain '/'"
    assert names.path_segment_problem("..") == "may not be '..'"


@given(st.text(max_size=300), st.integers(min_value=9, max_value=63))
def test_short_form_is_always_a_label_that_fits(text: str, limit: int) -> None:
    short = names.dns_label(text, limit)
    assert names.is_dns_label(short)
    assert len(short) <= limit
    assert short == names.dns_label(text, limit)


def test_short_form_keeps_the_prefix_and_differs_for_long_names() -> None:
    assert names.dns_label("counter-0") == "counter-0"
    one, other = names.dns_label("a" * 200), names.dns_label("a" * 201)
    assert one != other
    assert one.startswith("aaa")
    assert names.dns_label("my.pod").startswith("my-pod-")


def test_a_digest_is_sha256_and_64_digits() -> None:
    assert names.digest("sha256:" + "0a" * 32) == b"\n" * 32
    for other in (None, "", "0a" * 32, "sha256:" + "0A" * 32, "sha256:0a", "sha256:" + "0a" * 33):
        assert names.digest(other) is None
