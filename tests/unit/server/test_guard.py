"""The front of the manager: each change by a user is logged."""

import logging
from typing import Any

import pytest

from kilnwork.api import manager_access
from kilnwork.kit import asgi
from kilnwork.kube import reviews
from kilnwork.server import guard, ports

DRIVER = "system:serviceaccount:ns:kilnwork-driver"
CREDENTIAL = "authentication.kubernetes.io/credential-id"


class Access:
    """Every valid token belongs to the account, and has an id."""

    async def token_user(self, token: str, *, audience: str | None = None) -> reviews.User | None:
        extra = ((CREDENTIAL, ("JTI=1",)),)
        return reviews.User(DRIVER, extra=extra) if token == "known" else None

    async def authenticate(self, request: asgi.Request) -> reviews.User | None:
        return await self.token_user(guard.token_of(request))

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        raise AssertionError(f"a right of {user} was asked for: {question}")


async def _serve(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    del receive
    await asgi.Response(send).text(200 if scope[asgi.USER] else 401, "")


async def ask(method: str, *headers: tuple[str, str]) -> int:
    app = guard.Guard(Access(), (guard.Mount(prefix="/v1", app=_serve),))
    sent: list[Any] = []

    async def send(message: asgi.Message) -> None:
        sent.append(message)

    async def receive() -> asgi.Message:
        return {"type": "http.request"}

    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": method, "path": "/v1/a", "headers": raw, "query_string": b""}
    await app(scope, receive, send)
    return int(sent[0]["status"])


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    names = ("user", "claims", "credential", "method", "path", "status")
    found = [vars(record) for record in caplog.records if record.getMessage() == "audit"]
    return [{name: one[name] for name in names if name in one} for one in found]


async def test_change_is_logged_with_user(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shown = (manager_access.TOKEN_HEADER, "known")
    assert await ask("DELETE", shown, (manager_access.USER_HEADER, "alice%20b")) == 200
    assert await ask("GET", shown) == 200
    assert await ask("POST", (manager_access.TOKEN_HEADER, "unknown")) == 401
    same = {"path": "/v1/a"}
    first = {"user": DRIVER, "claims": "alice b", "credential": "JTI=1", "method": "DELETE"}
    assert lines(caplog) == [
        {**first, "status": 200, **same},
        {"method": "POST", "status": 401, **same},
    ]


async def test_claimed_name_cannot_inject_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await ask(
        "POST",
        (manager_access.TOKEN_HEADER, "known"),
        (manager_access.USER_HEADER, "a%0Aforged" * 100),
    )
    (line,) = lines(caplog)
    assert "\n" not in line["claims"]
    assert len(line["claims"]) <= 256
