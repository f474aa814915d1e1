"""Callbacks: `POST /callbacks/ID/RUN/ATTEMPT` sends the result of an attempt whose HTTP request was
accepted with 202.

Mounted by the composition roots. Any client that knows the URL may send the result: its `token` is
signed for this attempt with a key of the manager, and has an expiry time. 204: this result has
ended the attempt, and is stored; 410: the attempt has ended otherwise; 503: retry.
"""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Protocol

from kilnwork.api import attempts
from kilnwork.dispatch.hub import callback_results
from kilnwork.kit import asgi, clock, data_directories, ids
from kilnwork.server import errors, problems

PREFIX = "/callbacks"
MAX_BYTES = 512 * 1024
"""Maximum size of a result, which goes to the executor in one frame."""

STORED_S = 30.0
"""Maximum time that a request waits until the outcome is stored."""

_KEY_BYTES = 32
_TIME_DIGITS = 12


class CallbackHub(Protocol):
    """Port that passes a result to the executor that waits for it
    (`dispatch.hub.callback_results`).
    """

    async def call_back(
        self, ref: attempts.AttemptRef, *, media_type: str, body: bytes, wait_s: float
    ) -> callback_results.Taken: ...


def load_key(path: Path) -> bytes:
    """Return the key with which this manager signs callback URLs; it is created on first use."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) != _KEY_BYTES:
        found = secrets.token_bytes(_KEY_BYTES)
        data_directories.write_private(path, found, durable=True)
    return found


class CallbackUrls:
    """Maker and verifier of callback URLs. `base`: the external URL to which `/callbacks` is
    appended.
    """

    def __init__(self, key: bytes, base: str, time: clock.Clock) -> None:
        self._key = key
        self._base = base.rstrip("/")
        self._clock = time

    def url(self, ref: attempts.AttemptRef, lasts_s: float) -> str:
        """Return the URL for the result of an attempt, valid for `lasts_s` seconds."""
        until = int(self._clock.wall() + lasts_s)
        return f"{self._base}{PREFIX}/{ref}?token={until}.{self._signature(ref, until)}"

    def check(self, ref: attempts.AttemptRef, token: str) -> None:
        """Raise Forbidden or Gone unless the token is valid for this attempt now."""
        until, _, signature = token.partition(".")
        is_time = until.isascii() and until.isdigit() and len(until) <= _TIME_DIGITS
        expected = self._signature(ref, int(until)) if is_time else ""
        if not expected or not hmac.compare_digest(signature.encode(), expected.encode()):
            raise errors.Forbidden(
                "not the callback URL of this attempt: use the URL that was sent"
            )
        if int(until) < self._clock.wall():
            raise errors.Gone("this callback URL has expired")

    def _signature(self, ref: attempts.AttemptRef, until: int) -> str:
        digest = hmac.digest(self._key, f"{ref} {until}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class CallbacksApp:
    """ASGI app of `/callbacks`."""

    def __init__(self, urls: CallbackUrls, hub: CallbackHub) -> None:
        self._urls = urls
        self._hub = hub

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(self._take(request, response), request, response)

    async def _take(self, request: asgi.Request, response: asgi.Response) -> None:
        if request.method != "POST":
            raise errors.MethodNotAllowed
        ref = _ref(request.path)
        self._urls.check(ref, request.query.get("token", ""))
        encoding = request.header(b"content-encoding") or "identity"
        if encoding.strip().lower() != "identity":
            text = (
                f"Content-Encoding is {encoding[:50]!r}: send the result without, it is not decoded"
            )
            raise errors.UnsupportedMediaType(text)
        body = await request.body().read(limit=MAX_BYTES)
        taken = await self._hub.call_back(
            ref,
            media_type=request.header(b"content-type") or "",
            body=body,
            wait_s=STORED_S,
        )
        if taken is callback_results.Taken.OVER:
            raise errors.Gone("this attempt is over, but not by this result")
        if taken is callback_results.Taken.NOT_NOW:
            raise errors.NotReady("no executor has this attempt at the moment: send it again")
        await response.start(204, "text/plain")
        await response.end()


def _ref(path: str) -> attempts.AttemptRef:
    parts = path.removeprefix(PREFIX).strip("/").split("/")
    try:
        task, run, attempt = parts
        return attempts.AttemptRef(ids.task_id(task), int(run), int(attempt))
    except ValueError:
        raise errors.NotFound(f"callbacks are at {PREFIX}/ID/RUN/ATTEMPT") from None
