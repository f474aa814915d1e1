"""Addresses of directories of file jobs."""

import pytest

from kilnwork.api import file_job_uris


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("kiln:f-1", ("f-1", "results")),
        ("kiln:f-1/parts", ("f-1", "parts")),
        ("kiln:a%20b/input/", ("a b", "input")),
    ],
)
def test_parse_uri(uri: str, found: tuple[str, str]) -> None:
    assert file_job_uris.parse_uri(uri) == found


@pytest.mark.parametrize("uri", ["kiln:", "kiln:/", "kiln:f-1/output", "kiln:f-1/parts/7"])
def test_an_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"kiln:|directories"):
        file_job_uris.parse_uri(uri)


def test_uri_round_trips() -> None:
    made = file_job_uris.JobDirectory("a/b c", "errors")
    assert made.uri == "kiln:a%2Fb%20c/errors"
    assert file_job_uris.of_path("f-1/errors", "x").uri == "kiln:f-1/errors"
