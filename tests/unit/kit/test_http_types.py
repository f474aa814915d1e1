"""Requests and responses as values."""

import pytest

from kilnwork.kit import http_types


def test_the_target_of_a_request_has_its_query_percent_encoded() -> None:
    asked = http_types.ClientRequest(
        method="GET", path="/a%20b", query={"prefix": "x y/ü", "after": ""}
    )
    assert asked.target() == "/a%20b?prefix=x%20y%2F%C3%BC&after="
    assert http_types.ClientRequest(method="GET", path="/a").target() == "/a"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"kind": "Status", "message": "said so"}', "said so"),
        (b'{"title": "No", "detail": "said so", "message": "other"}', "said so"),
        (b"404 page not found\n", "404 page not found"),
        (b"[1]", "[1]"),
        (b"", "404 Not Found"),
    ],
)
def test_the_sentence_of_a_response(body: bytes, says: str) -> None:
    response = http_types.ClientResponse(404, "Not Found", body)
    assert response.message() == says
    assert not response.ok
    assert response.is_kubernetes_status() == (b"Status" in body)


def test_a_document_is_an_object_or_nothing() -> None:
    assert http_types.ClientResponse(200, "OK", b'{"a": 1}').document() == {"a": 1}
    assert http_types.ClientResponse(200, "OK", b"[1]").document() == {}
