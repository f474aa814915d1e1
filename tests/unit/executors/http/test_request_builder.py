"""The request that is sent, from what HAR says twice or not at all."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import http_task
from kilnwork.executors.http import exchange, request_builder


def template(url: str = "http://h/p", **more: Any) -> http_task.HttpTemplate:
    request = {"method": "GET", "url": url, **more.pop("request", {})}
    return msgspec.convert({"request": request, **more}, http_task.HttpTemplate)


def build(url: str = "http://h/p", **more: Any) -> exchange.Outgoing:
    return request_builder.build_request(
        template(url, **more), lambda ref: f"<{ref.name}.{ref.key}>", key="k", callback=""
    )


def headers(request: exchange.Outgoing) -> list[tuple[str, str]]:
    return [(n, v) for n, v in request.headers if n not in ("Accept", "Accept-Encoding")]


@pytest.mark.parametrize(
    ("url", "query", "wanted"),
    [
        ("http://h", [], "http://h/"),
        ("http://h/a%2Fb?x=1", [], "http://h/a%2Fb?x=1"),
        ("http://h/?a=1", [("a", "1")], "http://h/?a=1"),
        ("http://h/?a=1", [("a", "2")], "http://h/?a=1&a=2"),
        ("http://h/?a=1", [("a", "1"), ("a", "1")], "http://h/?a=1&a=1"),
        ("http://h/?a=%20b", [("a", " b")], "http://h/?a=%20b"),
        ("http://h/ä", [("ö", "&=")], "http://h/%C3%A4?%C3%B6=%26%3D"),
        ("https://h:8443/p;x=1", [], "https://h:8443/p;x=1"),
        ("http://bücher.example/", [], "http://xn--bcher-kva.example/"),
    ],
)
def test_the_url_has_each_parameter_once(
    url: str, query: list[tuple[str, str]], wanted: str
) -> None:
    parameters = [{"name": name, "value": value} for name, value in query]
    assert str(build(url, request={"queryString": parameters}).url) == wanted


def test_headers_keep_their_order_and_repeats_and_lose_those_of_the_connection() -> None:
    given = [
        ("X-B", "1"), (":authority", "h"), ("X-A", "2"), ("Connection", "close"), ("X-B", "3"),
        ("Content-Length", "99"), ("Transfer-Encoding", "chunked"), ("Host", "evil"),
        ("User-Agent", "me"),
    ]  # fmt: skip
    request = build(request={"headers": [{"name": n, "value": v} for n, v in given]})
    wanted = [("X-B", "1"), ("X-A", "2"), ("X-B", "3"), ("User-Agent", "me")]
    assert headers(request) == wanted


def test_a_cookie_header_goes_before_cookies_and_a_type_before_the_mime_type() -> None:
    cookies = [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    body = {"mimeType": "text/plain", "text": "x"}
    plain = dict(build(request={"cookies": cookies, "postData": body}).headers)
    assert (plain["Cookie"], plain["Content-Type"]) == ("a=1; b=2", "text/plain")
    own = [{"name": "cookie", "value": "c"}, {"name": "content-type", "value": "t/u"}]
    more = build(request={"cookies": cookies, "postData": body, "headers": own}).headers
    assert [v for n, v in more if n.lower() in ("cookie", "content-type")] == ["c", "t/u"]


def test_secrets_are_put_in_with_their_prefix_and_named() -> None:
    ref = {"name": "s", "key": "k", "prefix": "Bearer "}
    request = build(
        request={
            "headers": [{"name": "Authorization", "_secretRef": ref}],
            "cookies": [{"name": "c", "_secretRef": ref}],
        }
    )
    assert dict(request.headers)["Authorization"] == "Bearer <s.k>"
    assert dict(request.headers)["Cookie"] == "c=Bearer <s.k>"
    assert request.secret_headers == {"authorization", "cookie"}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"text": "ä"}, "ä".encode()),
        ({"_bodyBase64": "AAE="}, b"\0\1"),
        (
            {
                "mimeType": "application/x-www-form-urlencoded",
                "params": [{"name": "a b", "value": "&"}, {"name": "c"}],
            },
            b"a+b=%26&c=",
        ),
        ({}, None),
    ],
)
def test_bodies(body: dict[str, Any], wanted: bytes | None) -> None:
    assert build(request={"method": "POST", "postData": body}).body == wanted


def test_a_form_with_files() -> None:
    params = [
        {"name": "a", "value": "1"},
        {"name": 'f"', "value": "x", "fileName": "n\n.txt", "contentType": "text/plain"},
    ]
    request = build(request={"postData": {"mimeType": "multipart/form-data", "params": params}})
    kind = dict(request.headers)["Content-Type"]
    boundary = kind.partition("boundary=")[2]
    assert request.body is not None
    text = request.body.decode()
    assert text.startswith(f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n')
    assert 'name="f%22"; filename="n%0A.txt"\r\nContent-Type: text/plain\r\n\r\nx\r\n' in text
    assert text.endswith(f"--{boundary}--\r\n")


@pytest.mark.parametrize(
    ("method", "idempotent", "key"),
    [("POST", True, "k"), ("POST", None, None), ("GET", True, None), ("PUT", False, None)],
)
def test_repeatable_requests_have_a_key(
    method: str, *, idempotent: bool | None, key: str | None
) -> None:
    request = build(request={"method": method}, idempotent=idempotent)
    assert dict(request.headers).get("Idempotency-Key") == key


@pytest.mark.parametrize(
    ("status", "method", "then", "has_body"),
    [
        (301, "POST", "GET", False), (302, "POST", "GET", False), (303, "PUT", "GET", False),
        (307, "POST", "POST", True), (308, "PUT", "PUT", True), (302, "PUT", "PUT", True),
        (303, "HEAD", "HEAD", True),
    ],
)  # fmt: skip
def test_method_after_a_redirect(status: int, method: str, then: str, *, has_body: bool) -> None:
    request = build(request={"method": method, "postData": {"text": "x", "mimeType": "t/u"}})
    found = request_builder.build_redirected(request, status, "/next")
    assert (found.method, str(found.url), found.body is not None) == (
        then, "http://h/next", has_body,
    )  # fmt: skip
    assert ("Content-Type" in dict(found.headers)) is has_body


@pytest.mark.parametrize(
    ("location", "kept"),
    [("/x", True), ("http://h/x", True), ("http://h:81/x", False), ("https://h/x", False),
     ("//other/x", False)],
)  # fmt: skip
def test_secrets_are_not_sent_to_another_origin(location: str, *, kept: bool) -> None:
    given = [
        {"name": "Authorization", "value": "a"},
        {"name": "Cookie", "value": "b"},
        {"name": "X-Key", "_secretRef": {"name": "s", "key": "k"}},
        {"name": "X-Open", "value": "c"},
    ]
    found = dict(
        request_builder.build_redirected(build(request={"headers": given}), 302, location).headers
    )
    assert {"Authorization", "Cookie", "X-Key"} <= found.keys() or not kept
    assert kept or not {"Authorization", "Cookie", "X-Key"} & found.keys()
    assert "X-Open" in found


@pytest.mark.parametrize("location", ["ftp://h/", "http://u:p@h/", "javascript:x", "file:///etc"])
def test_some_redirects_go_nowhere(location: str) -> None:
    with pytest.raises(ValueError, match="cannot be requested"):
        request_builder.build_redirected(build(), 302, location)
