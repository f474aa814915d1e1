"""The log of an attempt: HAR without secrets."""

import base64
from typing import Any

import msgspec
import pytest
import yarl

from kilnwork.executors.http import exchange, har

SECRET = "pässword/1"
REQUEST = exchange.Outgoing(
    method="POST",
    url=yarl.URL("https://h/x?key=value&empty="),
    headers=[("Content-Type", "text/plain"), ("Authorization", f"Bearer {SECRET}")],
    body=b"sent",
    secret_headers=frozenset({"authorization"}),
)


def received(content: bytes = b"got", **more: Any) -> exchange.Received:
    body = exchange.Body()
    body.write(content)
    given = {
        "status": 200,
        "reason": "OK",
        "version": "HTTP/1.1",
        "headers": [("Content-Type", "text/plain")],
        "body": body,
        "address": "192.0.2.1",
        "timings": exchange.Timings(
            10.0, named=10.5, connected=11.0, responded=13.0, finished=13.25
        ),
        **more,
    }
    return exchange.Received(**given)


def entries(
    response: exchange.Received | None,
    *,
    request: exchange.Outgoing = REQUEST,
    secrets: tuple[str, ...] = (SECRET,),
    error: str = "",
) -> list[dict[str, Any]]:
    archive = har.Archive()
    archive.add(request, response, began=0.0, error=error, secrets=secrets)
    log = msgspec.json.decode(archive.encode())["log"]
    assert log["version"] == "1.2"
    found: list[dict[str, Any]] = log["entries"]
    return found


def test_an_exchange_has_what_was_sent_and_received() -> None:
    (entry,) = entries(received())
    assert entry["startedDateTime"] == "1970-01-01T00:00:00Z"
    assert entry["serverIPAddress"] == "192.0.2.1"
    sent, got = entry["request"], entry["response"]
    assert (sent["method"], sent["url"]) == ("POST", "https://h/x?key=value&empty=")
    assert sent["queryString"] == [
        {"name": "key", "value": "value"},
        {"name": "empty", "value": ""},
    ]
    assert sent["postData"] == {"mimeType": "text/plain", "text": "sent"}
    assert (got["status"], got["content"]["text"], got["content"]["size"]) == (200, "got", 3)


def test_phases_take_milliseconds() -> None:
    (entry,) = entries(received())
    assert entry["timings"] == {
        "blocked": -1, "dns": 500.0, "connect": 500.0, "ssl": -1, "send": 0, "wait": 2000.0,
        "receive": 250.0,
    }  # fmt: skip
    assert entry["time"] == 3250.0


def test_a_reused_connection_has_no_dns_and_connect() -> None:
    timings = exchange.Timings(10.0, responded=11.0, finished=11.5)
    (entry,) = entries(received(timings=timings))
    assert (entry["timings"]["dns"], entry["timings"]["connect"]) == (-1, -1)
    assert entry["timings"]["wait"] == 1000.0


def test_without_a_response_the_error_says_why() -> None:
    (entry,) = entries(None, error=f"refused by {SECRET}")
    assert entry["response"]["status"] == 0
    assert entry["response"]["_error"] == "refused by ***"
    assert "serverIPAddress" not in entry


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        "p%C3%A4ssword%2F1",
        "p%C3%A4ssword/1",
        r"p\u00e4ssword\/1",
        r"p\u00e4ssword/1",
        SECRET.encode().decode("latin-1"),
    ],
)
def test_secret_is_hidden_in_every_form(form: str) -> None:
    header = ("X-Echo", f"<{form}>")
    (entry,) = entries(received(f"({form})".encode(), headers=[header], redirect=f"/?{form}"))
    got = entry["response"]
    assert got["content"]["text"] == "(***)"
    assert got["headers"] == [{"name": "X-Echo", "value": "<***>"}]
    assert got["redirectURL"] == "/?***"


def test_secret_headers_and_cookies_are_hidden_whatever_they_hold() -> None:
    (entry,) = entries(received(headers=[("Set-Cookie", "a=b")]), secrets=())
    assert entry["request"]["headers"][1] == {"name": "Authorization", "value": "***"}
    assert entry["response"]["headers"] == [{"name": "Set-Cookie", "value": "***"}]


def test_short_values_are_not_hidden() -> None:
    short = "x" * (har.MIN_SECRET_LENGTH - 1)
    assert har.hidden(f"a {short} b", [short]) == f"a {short} b"
    assert har.hidden(f"a {short}y b", [f"{short}y"]) == "a *** b"


def test_the_beginning_of_a_secret_before_a_cut_is_hidden() -> None:
    assert har.hidden('it is "abc, secre"…, which is wrong', ["secret-value"]) == (
        'it is "abc, ***"…, which is wrong'
    )


def test_a_large_body_is_cut_and_a_binary_one_is_base64() -> None:
    (entry,) = entries(received(b"x" * (har.MAX_CONTENT_BYTES + 1)))
    content = entry["response"]["content"]
    assert len(content["text"]) == har.MAX_CONTENT_BYTES
    assert content["comment"] == f"the first 65536 bytes of {har.MAX_CONTENT_BYTES + 1}"
    (entry,) = entries(received(b"\xff\x00"))
    content = entry["response"]["content"]
    assert content["encoding"] == "base64"
    assert base64.b64decode(content["text"]) == b"\xff\x00"
    assert "comment" not in content


def test_the_first_and_the_last_exchanges_are_kept() -> None:
    archive = har.Archive()
    for number in range(har.MAX_ENTRIES + 5):
        request = exchange.Outgoing(method="GET", url=yarl.URL(f"http://h/{number}"), headers=[])
        archive.add(request, None, began=0.0, error="", secrets=())
    log = msgspec.json.decode(archive.encode())["log"]
    paths = [int(entry["request"]["url"].rpartition("/")[2]) for entry in log["entries"]]
    assert paths == [0, 1, 2, 3, 9, 10, 11, 12]
    assert log["comment"] == "5 exchanges in the middle are left out"
