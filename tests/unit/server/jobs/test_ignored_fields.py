"""Parameters that are accepted but have no effect get a warning that names them."""

import pytest

from kilnwork.server.jobs import ignored_fields

ACTIONS = ("cancel", "suspend", "pause", "resume", "retry", "redrive")


@pytest.mark.parametrize(
    ("method", "path", "header", "warned"),
    [
        ("POST", "/jobs", b"idempotency-key", False),
        ("GET", "/jobs", b"idempotency-key", True),
        ("PATCH", "/files/{file}", b"upload-offset", False),
        ("POST", "/files", b"upload-offset", True),
        ("HEAD", "/jobs/{job}/results", b"if-match", False),
        *(("POST", f"/jobs/{{job}}/{name}", b"if-match", False) for name in ACTIONS),
        ("POST", "/jobs", b"if-match", True),
        ("POST", "/jobs", b"range", False),
    ],
)
def test_ignored_headers_cause_warnings(
    method: str, path: str, header: bytes, *, warned: bool
) -> None:
    assert (header in ignored_fields.unheeded(method, path)) is warned


def test_warning_names_the_header() -> None:
    passed_over = ignored_fields.unheeded("POST", "/jobs")
    found = ignored_fields.of_headers([(b"digest", b"x"), (b"accept", b"y")], passed_over)
    assert [text.split(" is ignored")[0] for text in found] == ["Digest"]


def test_source_parameters_are_warned_of_with_their_values() -> None:
    assert ignored_fields.of_parameters({"name": "a"}) == ()
    (text,) = ignored_fields.of_parameters({"gpu": "x" * 200, "name": "a"})
    assert text.startswith(f"gpu={'x' * 100} is ignored")


def test_warning_header_is_quoted_ascii() -> None:
    name, value = ignored_fields.header('a "b" \\ é\n')
    assert name == b"warning"
    assert value == b'299 - "a \\"b\\" \\\\ \\\\xe9?"'
