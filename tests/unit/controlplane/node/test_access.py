"""Who may use the kubelet's paths, with the kubelet's texts for those who may not."""

from typing import Any

import pytest

from kilnwork.controlplane.node import access
from kilnwork.kit import asgi
from kilnwork.kube import errors, reviews

ANNA = reviews.User("anna", ("system:authenticated",))


class FakeReviewer:
    """A reviewer that knows one token and some rights; it can be away."""

    def __init__(self, *rights: tuple[str, str]) -> None:
        self._rights = rights
        self.away = False

    async def user(self, token: str) -> reviews.User | None:
        self._check()
        return ANNA if token == "good" else None

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        self._check()
        return user == ANNA and (verb, subresource) in self._rights

    def _check(self) -> None:
        if self.away:
            raise errors.KubeError("the API server is away")


def certificate(name: str, *groups: str) -> dict[str, Any]:
    parts = [(("organizationName", group),) for group in groups]
    return {"subject": (*parts, (("commonName", name),))}


async def refusal(
    reviewer: FakeReviewer,
    path: str,
    *,
    method: str = "GET",
    token: str = "",
    shown: dict[str, Any] | None = None,
) -> asgi.Refusal | None:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    state = {"peer_certificate": shown}
    scope = {"method": method, "path": path, "headers": headers, "state": state}

    async def receive() -> asgi.Message:
        raise AssertionError("rights are not in the body")

    return await access.NodeAccess(reviewer).refusal(asgi.Request(scope, receive))


@pytest.mark.parametrize("shown", [None, {}])
async def test_anonymous_request_is_unauthorized(shown: dict[str, Any] | None) -> None:
    response = await refusal(FakeReviewer(("get", "proxy")), "/containerLogs/ns/p/c", shown=shown)
    assert response == access.UNAUTHORIZED


async def test_unknown_token_is_unauthorized() -> None:
    response = await refusal(FakeReviewer(("get", "proxy")), "/healthz", token="bad")
    assert response == access.UNAUTHORIZED


async def test_nodes_proxy_permission_is_sufficient() -> None:
    both = FakeReviewer(("get", "proxy"), ("create", "proxy"))
    assert await refusal(both, "/containerLogs/ns/p/c", token="good") is None
    assert await refusal(both, "/exec/ns/p/c", token="good", method="POST") is None
    assert await refusal(both, "/healthz", token="good") is None


async def test_get_permission_does_not_allow_create() -> None:
    response = await refusal(
        FakeReviewer(("get", "proxy")), "/exec/ns/p/c", token="good", method="POST"
    )
    assert response == (
        403,
        "Forbidden (user=anna, verb=create, resource=nodes, subresource(s)=[proxy])\n",
        (),
    )


async def test_finer_permission_allows_only_its_path() -> None:
    finer = FakeReviewer(("get", "healthz"))
    assert await refusal(finer, "/healthz", token="good") is None
    response = await refusal(finer, "/containerLogs/ns/p/c", token="good")
    assert response is not None
    assert response.status == 403


async def test_superuser_certificate_needs_no_api_server() -> None:
    reviewer = FakeReviewer()
    reviewer.away = True
    shown = certificate("apiserver", "system:masters")
    assert await refusal(reviewer, "/containerLogs/ns/p/c", shown=shown) is None


async def test_other_certificates_need_the_permission() -> None:
    response = await refusal(FakeReviewer(), "/healthz", shown=certificate("bert"))
    assert response is not None
    assert "Forbidden (user=bert, verb=get" in response.message
    assert "subresource(s)=[healthz proxy]" in response.message


async def test_other_clients_are_denied_without_api_server() -> None:
    reviewer = FakeReviewer(("get", "proxy"))
    reviewer.away = True
    assert await refusal(reviewer, "/healthz", token="good") == access.UNAUTHORIZED
    response = await refusal(reviewer, "/containerLogs/ns/p/c", shown=certificate("bert"))
    assert response == (
        500,
        "Authorization error (user=bert, verb=get, resource=nodes, subresource=proxy)",
        (),
    )
