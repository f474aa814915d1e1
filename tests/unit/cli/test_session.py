"""Errors of a server with their exit codes, and parts of requests."""

import pytest

from kilnwork.cli import errors, exits, session
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors

SERVER = "https://127.0.0.1:7443"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (kube_errors.NotFound(404, "NotFound", "no a"), exits.Exit.NOT_FOUND, "no a"),
        (kube_errors.Forbidden(403, "Forbidden", "no right"), exits.Exit.FORBIDDEN, "no right"),
        (kube_errors.Unauthorized(401, "Unauthorized", "u"), exits.Exit.FORBIDDEN, "token"),
        (kube_errors.Conflict(409, "Conflict", "changed"), exits.Exit.FAILED, "changed"),
        (kube_errors.Unavailable(503, "Starting", "wait"), exits.Exit.FAILED, "wait"),
        (kube_errors.Unavailable(0, "Timeout", "t"), exits.Exit.UNREACHABLE, "timed out"),
        (kube_errors.Unavailable(0, "Refused", "r"), exits.Exit.UNREACHABLE, SERVER),
    ],
)
def test_each_error_of_a_server_has_its_exit_code(
    error: kube_errors.KubeError, code: exits.Exit, words: str
) -> None:
    found = session.explain_error(error, SERVER)
    assert found.code == code
    assert words in str(found)


@pytest.mark.parametrize(
    ("url", "query"),
    [("/a", {}), ("/a?b=c&d=", {"b": "c", "d": ""}), ("https://h/a?b=%20c#d=e", {"b": " c"})],
)
def test_query_of_a_url_is_read(url: str, query: dict[str, str]) -> None:
    assert session.query_of(url) == query


def test_name_in_a_path_is_quoted_with_its_slashes() -> None:
    assert session.quoted("a/b c") == "a%2Fb%20c"


def test_response_that_is_not_json_is_a_command_error() -> None:
    good = http_types.ClientResponse(status=200, reason="OK", headers={}, body=b'{"a": 1}')
    bad = http_types.ClientResponse(status=200, reason="OK", headers={}, body=b"<html>")
    assert session.decode_json(good) == {"a": 1}
    with pytest.raises(errors.CommandError, match="did not respond with JSON"):
        session.decode_json(bad)
