"""Discovery of a manager: generators that yield requests and interpret the responses. No I/O.

In a Kubernetes cluster a manager is reached through the API server's proxy of its Service
(`api.manager_access`), so that a kubeconfig is enough. The proxy does not forward the caller's
credential: the manager gets a token in a separate header, either the token of the kubeconfig or
that of a ServiceAccount of the namespace. Each function is a generator that yields requests and
receives the responses; the caller that runs it adds the credential of the kubeconfig to each
request.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib import parse

import msgspec

from kilnwork.api import api_resources, manager_access
from kilnwork.endpoints import errors
from kilnwork.kit import http_types
from kilnwork.kube import config

T = TypeVar("T")

RENEW_AT = 0.8
"""Fraction of a token's lifetime after which a new one is requested, as in the kubelet."""

_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


Steps = Generator[http_types.ClientRequest, http_types.ClientResponse, T]


class AccountToken(NamedTuple):
    """Headers with a token of a ServiceAccount, and the time for which to use them."""

    headers: Mapping[str, str]
    lasts_s: float


def ask_server(settings: config.Config) -> Steps[dict[str, Any] | None]:
    """Return the `/v1/endpoints` document of a server that `kiln up` runs, or None for a Kubernetes
    API server.

    Raises EndpointError for any other server, if the server is not ready or rejects the token, or
    if the kubeconfig of an API server impersonates a user: a manager behind the API server would
    not see that user.
    """
    server = settings.server
    # Send only the kubeconfig's own credential: the API server of a cluster must not see a token
    # for the manager, and is not asked for one before it is needed.
    response = yield _get(manager_access.ENDPOINTS_PATH)
    document = response.document()
    if response.ok and "channel" in document:
        return document
    if response.status == 401:
        raise errors.AccessDenied(
            f"{server} does not accept the token: take the kubeconfig that `kiln up` prints, or "
            "its data directory; for another cluster log in again"
        )
    if response.status in (403, 404):
        found = response.is_kubernetes_status()
        if not found:
            version = yield _get("/version")  # every API server lets all clients read it
            found = version.ok and "gitVersion" in version.document()
        if found and settings.impersonate is not None:
            raise errors.AccessDenied(manager_access.IMPERSONATION_REFUSED)
        if found:
            return None
    elif response.status >= 500:
        raise errors.ManagerNotReady(f"{server} is not ready: {response.message()}")
    raise errors.EndpointError(
        f"{server} is not a kilnwork server: it has no /v1 ({response.status} {response.reason})"
    )


def ask_behind(home: str, headers: Mapping[str, str] | None = None) -> Steps[dict[str, Any]]:
    """Return the `/v1/endpoints` document of the manager in namespace `home`, behind the API
    server.

    `headers`: headers with the manager's token; None if the sender adds it to every request. Raises
    EndpointError, which explains why the manager cannot be reached.
    """
    path = manager_access.proxy_path(home) + manager_access.ENDPOINTS_PATH
    response = yield _get(path, headers)
    document = response.document()
    if response.ok and "channel" in document:
        return document
    by_manager = response.status in (403, 404) and not response.is_kubernetes_status()
    problem = manager_access.explain_unreachable(
        0 if by_manager else response.status, response.message().rstrip("."), home=home
    )
    if response.status in (401, 403):
        raise errors.AccessDenied(problem)
    if response.status == 404 or response.status >= 500:
        raise errors.ManagerNotReady(problem)
    raise errors.EndpointError(problem)


def get(path: str) -> Steps[http_types.ClientResponse]:
    """Return the response to a GET for this path."""
    return (yield _get(path))


def ask_readiness(home: str) -> Steps[str]:
    """Return a text that says why the manager in namespace `home` is not ready; "" if it is ready.

    The text says what the manager waits for, or why it cannot be asked.
    """
    response = yield _get(f"{manager_access.proxy_path(home)}/readyz")
    if response.ok:
        return ""
    if response.status == 404:
        return "it is not installed; `kiln install | kubectl apply -f -` does that"
    lines = response.text().splitlines()
    checks = [line.removeprefix("[-]") for line in lines if line.startswith("[-]")]
    return "; ".join(checks) or response.message()


def request_token(server: str, namespace: str, accounts: Sequence[str]) -> Steps[AccountToken]:
    """Return a token of the first ServiceAccount in `accounts` for which the caller may request
    one.

    The request is a TokenRequest (authentication.k8s.io/v1). Raises AccessDenied if there is no
    such account, and ManagerNotReady if the API server cannot respond now.
    """
    base = api_resources.SERVICE_ACCOUNTS.base(parse.quote(namespace, safe=""))
    refusals, missing = [], False
    for account in accounts:
        response = yield _post(f"{base}/{account}/token", manager_access.token_request())
        if response.ok:
            return (yield from _shown(response))
        if response.status >= 500:
            raise errors.ManagerNotReady(f"{server} is not ready: {response.message()}")
        if response.status == 404:
            missing = True
            refusals.append(f"there is no ServiceAccount {account}")
        else:
            refusals.append(f"you may not request one of {account}: {response.message()}")
    hint = "`kiln token ACCOUNT` makes a token of another account"
    if missing:
        hint = (
            f"`kiln install --only drivers --drivers-in {namespace}` makes these accounts, {hint}"
        )
    raise errors.AccessDenied(
        f"the kubeconfig for {server} has no token for the manager, and in namespace "
        f"{namespace} you cannot get one of ServiceAccount {' or '.join(accounts)}: "
        f"{'; '.join(refusals)}. {hint}"
    )


def _shown(response: http_types.ClientResponse) -> Steps[AccountToken]:
    made = response.document()
    lasts_s = RENEW_AT * float(made["spec"].get("expirationSeconds") or manager_access.TOKEN_S)
    headers = {manager_access.TOKEN_HEADER: str(made["status"]["token"])}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reviewed = yield _post(_SELF_REVIEWS, review)
    if reviewed.ok:  # Kubernetes before 1.28 does not return it
        name = str(reviewed.document()["status"]["userInfo"].get("username") or "")
        headers |= {manager_access.USER_HEADER: parse.quote(name, safe=":@/ ")} if name else {}
    return AccountToken(headers, lasts_s)


def _get(path: str, headers: Mapping[str, str] | None = None) -> http_types.ClientRequest:
    return http_types.ClientRequest(method="GET", path=path, headers=headers)


def _post(path: str, body: Mapping[str, Any]) -> http_types.ClientRequest:
    return http_types.ClientRequest(method="POST", path=path, body=msgspec.json.encode(body))
