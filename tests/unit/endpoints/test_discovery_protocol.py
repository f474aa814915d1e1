"""Discovery of a manager as requests and responses, without a network."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from kilnwork.api import manager_access
from kilnwork.endpoints import discovery_protocol, errors
from kilnwork.kit import http_types
from kilnwork.kube import config

T = TypeVar("T")
SERVER = "https://there:6443"
SETTINGS = config.Config(server=SERVER)
STATUS = {"kind": "Status", "message": "said so"}
ACCOUNTS = (manager_access.DRIVER_ACCOUNT, manager_access.READER_ACCOUNT)
TOKENS = "/api/v1/namespaces/ns/serviceaccounts/{}/token"
MINTED = {"spec": {"expirationSeconds": 600}, "status": {"token": "secret"}}

Script = Mapping[str, tuple[int, Any]]


def play(
    steps: discovery_protocol.Steps[T], script: Script
) -> tuple[T, list[http_types.ClientRequest]]:
    """Respond to the requests by path; return the result and the requests."""
    sent: list[http_types.ClientRequest] = []
    try:
        request = next(steps)
        while True:
            sent.append(request)
            status, document = script.get(request.path, (404, "404 page not found"))
            body = document if isinstance(document, str) else json.dumps(document)
            request = steps.send(http_types.ClientResponse(status, "Reason", body.encode()))
    except StopIteration as done:
        return done.value, sent


def test_kiln_up_server_is_the_manager() -> None:
    said = {"channel": {"unix": "/run/x"}}
    found, sent = play(discovery_protocol.ask_server(SETTINGS), {"/v1/endpoints": (200, said)})
    assert found == said
    assert [(request.path, request.headers) for request in sent] == [("/v1/endpoints", None)]


@pytest.mark.parametrize(
    ("script", "requests"),
    [
        ({"/v1/endpoints": (403, STATUS)}, 1),
        ({"/v1/endpoints": (404, STATUS)}, 1),
        ({"/version": (200, {"gitVersion": "v1.33.0"})}, 2),
    ],
)
def test_api_server_is_recognised_by_status_or_version(script: Script, requests: int) -> None:
    found, sent = play(discovery_protocol.ask_server(SETTINGS), script)
    assert (found, len(sent)) == (None, requests)


def test_impersonation_behind_an_api_server_is_refused() -> None:
    acting = config.Config(server=SERVER, impersonate=config.Impersonation(user="else"))
    with pytest.raises(errors.AccessDenied, match="acts as another user"):
        play(discovery_protocol.ask_server(acting), {"/v1/endpoints": (404, STATUS)})
    found, _ = play(
        discovery_protocol.ask_server(acting), {"/v1/endpoints": (200, {"channel": {}})}
    )
    assert found == {"channel": {}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, errors.AccessDenied), (503, errors.ManagerNotReady), (302, errors.EndpointError)],
)
def test_other_server_is_refused_with_a_remedy(
    status: int, kind: type[errors.EndpointError]
) -> None:
    with pytest.raises(errors.EndpointError) as caught:
        play(discovery_protocol.ask_server(SETTINGS), {"/v1/endpoints": (status, STATUS)})
    assert type(caught.value) is kind


def test_account_with_most_rights_is_used_with_the_users_name() -> None:
    review = {"status": {"userInfo": {"username": "alice ü"}}}
    script = {
        TOKENS.format(manager_access.DRIVER_ACCOUNT): (403, STATUS),
        TOKENS.format(manager_access.READER_ACCOUNT): (201, MINTED),
        "/apis/authentication.k8s.io/v1/selfsubjectreviews": (201, review),
    }
    found, sent = play(discovery_protocol.request_token(SERVER, "ns", ACCOUNTS), script)
    assert found.lasts_s == 480
    assert found.headers == {
        manager_access.TOKEN_HEADER: "secret",
        manager_access.USER_HEADER: "alice %C3%BC",
    }
    assert [request.method for request in sent] == ["POST"] * 3


def test_api_server_without_self_review_gives_no_user() -> None:
    script = {TOKENS.format(manager_access.DRIVER_ACCOUNT): (201, MINTED)}
    found, _ = play(discovery_protocol.request_token(SERVER, "ns", ACCOUNTS), script)
    assert found.headers == {manager_access.TOKEN_HEADER: "secret"}


def test_missing_accounts_are_reported_with_reasons_and_remedy() -> None:
    script = {TOKENS.format(manager_access.READER_ACCOUNT): (403, STATUS)}
    with pytest.raises(errors.AccessDenied) as caught:
        play(discovery_protocol.request_token(SERVER, "ns", ACCOUNTS), script)
    said = str(caught.value)
    assert f"there is no ServiceAccount {manager_access.DRIVER_ACCOUNT}" in said
    assert f"you may not request one of {manager_access.READER_ACCOUNT}: said so" in said
    assert "kiln install --only drivers --drivers-in ns" in said


@pytest.mark.parametrize(
    ("status", "document", "words"),
    [
        (200, "", ""),
        (404, STATUS, "it is not installed; `kiln install | kubectl apply -f -` does that"),
        (503, "[+]ping ok\n[-]journal opens\n[-]caches fill\n", "journal opens; caches fill"),
        (503, STATUS, "said so"),
    ],
)
def test_unready_manager_reports_its_waits(status: int, document: Any, words: str) -> None:
    path = f"{manager_access.proxy_path('there')}/readyz"
    found, _ = play(discovery_protocol.ask_readiness("there"), {path: (status, document)})
    assert found == words
