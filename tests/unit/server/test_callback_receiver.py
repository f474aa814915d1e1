"""URLs for bringing results are valid for one attempt and for a limited time."""

from pathlib import Path
from typing import Any
from urllib import parse

import pytest

from kilnwork.api import attempts
from kilnwork.dispatch.hub import callback_results as hub_callbacks
from kilnwork.kit import asgi, clock, ids
from kilnwork.server import callback_receiver, errors


class At(clock.SystemClock):
    """A clock that is set by the test."""

    now = 1000.0

    def wall(self) -> float:
        return self.now


TASK = ids.TaskId(bytes(range(16)))
REF = attempts.AttemptRef(TASK, 1, 2)


def token(url: str) -> str:
    return parse.parse_qs(parse.urlsplit(url).query)["token"][0]


def test_url_is_valid_for_its_attempt_until_it_expires() -> None:
    time = At()
    urls = callback_receiver.CallbackUrls(b"k" * 32, "http://m/", time)
    url = urls.url(REF, 60)
    assert url.startswith(f"http://m/callbacks/{ids.task_text(TASK)}/1/2?token=")
    urls.check(REF, token(url))
    time.now = 1060.0
    urls.check(REF, token(url))
    time.now = 1061.5
    with pytest.raises(errors.Gone):
        urls.check(REF, token(url))


@pytest.mark.parametrize(
    "changed",
    [
        attempts.AttemptRef(TASK, 1, 3),
        attempts.AttemptRef(TASK, 2, 2),
        attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 2),
    ],
)
def test_url_is_invalid_for_other_attempts(changed: attempts.AttemptRef) -> None:
    urls = callback_receiver.CallbackUrls(b"k" * 32, "http://m", At())
    with pytest.raises(errors.Forbidden):
        urls.check(changed, token(urls.url(REF, 60)))


@pytest.mark.parametrize(
    "text", ["", ".", "x.y", "99999999999", "99999999999.", "1060.é", "².x", "9" * 5000 + ".x"]
)
def test_invalid_token_is_refused(text: str) -> None:
    with pytest.raises(errors.Forbidden):
        callback_receiver.CallbackUrls(b"k" * 32, "http://m", At()).check(REF, text)


def test_changed_expiry_invalidates_signature() -> None:
    urls = callback_receiver.CallbackUrls(b"k" * 32, "http://m", At())
    until, _, signature = token(urls.url(REF, 60)).partition(".")
    with pytest.raises(errors.Forbidden):
        urls.check(REF, f"{int(until) + 1}.{signature}")


def test_key_is_stored_and_other_keys_urls_are_refused(tmp_path: Path) -> None:
    key = callback_receiver.load_key(tmp_path / "key")
    assert callback_receiver.load_key(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    other = callback_receiver.load_key(tmp_path / "other")
    mine, theirs = (callback_receiver.CallbackUrls(one, "http://m", At()) for one in (key, other))
    with pytest.raises(errors.Forbidden):
        mine.check(REF, token(theirs.url(REF, 60)))


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("identity", 204)])
async def test_compressed_result_is_refused(encoding: str, status: int) -> None:
    sent: list[Any] = []
    results: list[bytes] = []

    async def send(message: asgi.Message) -> None:
        sent.append(message)

    async def receive() -> asgi.Message:
        return {"type": "http.request", "body": b"{}"}

    class Hub:
        async def call_back(
            self, ref: attempts.AttemptRef, *, media_type: str, body: bytes, wait_s: float
        ) -> hub_callbacks.Taken:
            results.append(body)
            return hub_callbacks.Taken.STORED

    urls = callback_receiver.CallbackUrls(b"k" * 32, "", At())
    path, _, query = urls.url(REF, 60).partition("?")
    scope: asgi.Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"content-encoding", encoding.encode())],
    }
    await callback_receiver.CallbacksApp(urls, Hub())(scope, receive, send)
    assert sent[0]["status"] == status
    assert results == [b"{}"] * (status == 204)
