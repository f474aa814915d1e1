"""The way of a command to the manager: the server of a `kiln up` itself, else through a cluster.

Used by `session` for paths below `/v1`. In a cluster the way leads through the API server's proxy
of the manager's Service, so a kubeconfig is all that is needed. The proxy keeps the caller's own
credential for itself: the manager is shown a token in a header of its own, that of the kubeconfig,
or, where it has none, one of ServiceAccount `kilnwork-driver` of the namespace; of
`kilnwork-reader` for who may only look.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import manager, resource
from kilnwork.cli import errors
from kilnwork.kube import config, transport
from kilnwork.kube import errors as kube_errors


@dataclass(frozen=True, slots=True)
class Way:
    """What comes before a path of the manager, and the headers that go with it.

    `lasts_s`: when to find it again, for its token ends; None: never.
    """

    prefix: str = ""
    headers: Mapping[str, str] | None = None
    lasts_s: float | None = None


def home() -> str:
    """The namespace of a cluster's manager."""
    return manager.home(os.environ)


async def readiness(http: transport.Transport) -> str:
    """What the manager of a cluster waits for, or why it cannot be asked; empty when it is ready.

    Raises KubeError when the API server itself does not answer.
    """
    try:
        await http.send(_get(f"{manager.proxy_path(home())}/readyz"))
    except kube_errors.ApiError as error:
        if isinstance(error, kube_errors.Unavailable) and not error.status:
            raise
        if isinstance(error, kube_errors.NotFound):
            return "it is not installed; `kiln install | kubectl apply -f -` does that"
        checks = [line for line in str(error).splitlines() if line.startswith("[-]")]
        return "; ".join(line.removeprefix("[-]") for line in checks) or str(error)
    return ""


async def find(http: transport.Transport, settings: config.Config, *, namespace: str) -> Way:
    """The way to the manager; `namespace`: whose accounts may be used.

    Raises CommandError with what is missing, or a KubeError.
    """
    if await _is_manager(http):
        return Way()
    if settings.impersonate is not None:
        raise errors.Refused(manager.ACTS)
    lasts_s = None
    shown = {manager.TOKEN_HEADER: (await http.credential()).token or ""}
    if not shown[manager.TOKEN_HEADER]:
        lasts_s = manager.TOKEN_S / 2  # an API server may give one for less than was asked for
        shown[manager.TOKEN_HEADER] = await _account_token(http, namespace)
        name = parse.quote(await _own_name(http), safe=":@/ ")
        shown |= {manager.USER_HEADER: name} if name else {}
    way = Way(manager.proxy_path(home()), shown, lasts_s)
    try:
        await http.send(_get(way.prefix + manager.ENDPOINTS_PATH, way.headers))
    except kube_errors.ApiError as error:
        raise _in_words(error, home()) from error
    return way


async def _is_manager(http: transport.Transport) -> bool:
    """True for a `kiln up`; an API server has no such path, or allows it to nobody."""
    try:
        await http.send(_get(manager.ENDPOINTS_PATH))
    except (kube_errors.NotFound, kube_errors.Forbidden):
        return False
    return True


def _get(path: str, headers: Mapping[str, str] | None = None) -> transport.Request:
    return transport.Request(method="GET", path=path, headers=headers)


async def _account_token(http: transport.Transport, namespace: str) -> str:
    """Of the account that may do most among those whose tokens the caller may ask for."""
    refusals = []
    for account in (manager.DRIVER_ACCOUNT, manager.READER_ACCOUNT):
        try:
            return await _token_of(http, account, namespace)
        except kube_errors.NotFound:
            refusals.append(f"there is no ServiceAccount {account}")
        except kube_errors.Forbidden as error:
            refusals.append(str(error))
    hint = ""
    if "there is no" in " ".join(refusals):
        hint = f"; `kiln install --only drivers --drivers-in {namespace}` makes these accounts"
    raise errors.Refused(
        f"the kubeconfig has no token to show to the manager, and in namespace {namespace} you get "
        f"none of ServiceAccount {manager.DRIVER_ACCOUNT}, nor, to look only, of "
        f"{manager.READER_ACCOUNT}: {'; '.join(refusals)}{hint}"
    )


async def _token_of(http: transport.Transport, account: str, namespace: str) -> str:
    accounts = resource.SERVICE_ACCOUNTS.base(parse.quote(namespace, safe=""))
    answer = await http.send(
        transport.Request(
            method="POST",
            path=f"{accounts}/{account}/token",
            body=msgspec.json.encode(manager.token_request()),
        )
    )
    review: dict[str, Any] = msgspec.json.decode(answer.body)
    return str(review["status"]["token"])


async def _own_name(http: transport.Transport) -> str:
    """As whom the API server knows the caller, "" where it does not say (Kubernetes 1.28)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    request = transport.Request(
        method="POST",
        path="/apis/authentication.k8s.io/v1/selfsubjectreviews",
        body=msgspec.json.encode(body),
    )
    try:
        answer = await http.send(request)
    except kube_errors.ApiError:
        return ""
    review: dict[str, Any] = msgspec.json.decode(answer.body)
    return str(review["status"]["userInfo"].get("username") or "")


def _in_words(error: kube_errors.ApiError, space: str) -> Exception:
    """What stands in the way, of the answers that the API server gives for the manager."""
    said = manager.obstacle(error.status, str(error).rstrip("."), home=space)
    if isinstance(error, kube_errors.Forbidden):
        return errors.Refused(said)
    absent = isinstance(error, kube_errors.NotFound)
    if absent or (isinstance(error, kube_errors.Unavailable) and error.status):
        return errors.Unreachable(said)
    return error
