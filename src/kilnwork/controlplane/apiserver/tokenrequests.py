"""TokenRequest: issues tokens of service accounts (`serviceaccounts/NAME/token`).

Used by the API server for `kubectl create token`, and by the node for its Pods. This module
validates the request and the object that the token is to be bound to, then calls `tokens`. Nothing
is stored.
"""

from typing import Any

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import (
    authn,
    causes,
    lookup_interface,
    metadata,
    statuses,
    tokens,
)
from kilnwork.kit import clock

RESOURCE = api_resources.Resource(
    group="authentication.k8s.io",
    version="v1",
    kind="TokenRequest",
    plural="tokenrequests",
    singular="tokenrequest",
)

_BINDABLE = {
    "Pod": api_resources.PODS,
    "Secret": api_resources.SECRETS,
    "Node": api_resources.NODES,
}


class _Reference(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _Reference | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    metadata: dict[str, Any] | None = None
    spec: _Spec | None = None


def issue_token(
    body: meta.JsonObject,
    *,
    account: meta.JsonObject,
    minter: tokens.TokenIssuer,
    reader: lookup_interface.Lookup,
    user: authn.User,
) -> meta.JsonObject:
    """Return the TokenRequest with its status. Raises StatusError for an invalid request.

    A node gets only tokens that are bound to a Pod that runs on it, as with NodeRestriction.
    """
    spec = _read(body)
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    seconds = tokens.DEFAULT_SECONDS if spec.expiration_seconds is None else spec.expiration_seconds
    _check_seconds(seconds)
    given_name = metadata.metadata_of(body).get("name")
    if given_name and given_name != name:
        text = "must match the service account name if specified"
        raise statuses.invalid(RESOURCE, name, [causes.invalid("metadata.name", given_name, text)])
    if not user.is_admin and "system:nodes" in user.groups:
        problem = _node_problem(spec.bound_object_ref, namespace, reader, user)
        if problem is not None:
            raise statuses.refused(api_resources.SERVICE_ACCOUNTS, name, problem)
    bound = _bound(spec.bound_object_ref, account, reader)
    audiences = spec.audiences or [tokens.API_AUDIENCE]
    minted = minter.mint(
        namespace,
        name,
        uid=account["metadata"]["uid"],
        audiences=audiences,
        seconds=seconds,
        bound=bound,
    )
    written: meta.JsonObject = {"audiences": audiences, "expirationSeconds": seconds}
    if spec.bound_object_ref is not None:
        written["boundObjectRef"] = msgspec.to_builtins(spec.bound_object_ref)
    found = {
        "name": name,
        "namespace": namespace,
        # Nothing is stored: this is the time at which the token was issued.
        "creationTimestamp": clock.rfc3339(minted.expires - seconds),
    }
    return _document(found, written, minted)


def _document(
    found: meta.JsonObject, spec: meta.JsonObject, minted: tokens.Minted
) -> meta.JsonObject:
    return {
        "kind": RESOURCE.kind,
        "apiVersion": RESOURCE.api_version,
        "metadata": found,
        "spec": spec,
        "status": {
            "token": minted.token,
            "expirationTimestamp": clock.rfc3339(minted.expires),
        },
    }


def _read(body: meta.JsonObject) -> _Spec:
    try:
        request = msgspec.convert(body, _Request)
    except msgspec.ValidationError as error:
        raise statuses.bad_request(
            f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
        ) from error
    return request.spec or _Spec()


def _check_seconds(seconds: int) -> None:
    field = "spec.expirationSeconds"
    if seconds < tokens.MIN_SECONDS:
        cause = causes.invalid(field, seconds, "may not specify a duration less than 10 minutes")
    elif seconds > tokens.MAX_SECONDS:
        cause = causes.invalid(
            field, seconds, "may not specify a duration larger than 2^32 seconds"
        )
    else:
        return
    raise statuses.invalid(RESOURCE, "", [cause])


def _node_problem(
    reference: _Reference | None, namespace: str, reader: lookup_interface.Lookup, user: authn.User
) -> str | None:
    """Return why NodeRestriction refuses a token to a node, or None if it does not.

    A Pod that does not exist is left to `_bound`.
    """
    if reference is None or reference.kind != "Pod":
        return "node requested token not bound to a pod"
    if not reference.uid:
        return "node requested token with a pod binding without a uid"
    pod = reader.get(api_resources.PODS, namespace, reference.name)
    node = ((pod or {}).get("spec") or {}).get("nodeName")
    if pod is not None and (not node or user.name != f"system:node:{node}"):
        return "node requested token bound to a pod scheduled on a different node"
    return None


def _bound(
    reference: _Reference | None, account: meta.JsonObject, reader: lookup_interface.Lookup
) -> tokens.Bound | None:
    if reference is None:
        return None
    kind = _BINDABLE.get(reference.kind)
    if kind is None or reference.api_version not in ("", kind.api_version):
        raise statuses.bad_request(
            f"cannot bind token to object of type /{reference.api_version}, Kind={reference.kind}"
        )
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    target = reader.get(kind, namespace if kind.namespaced else None, reference.name)
    if target is None:
        raise statuses.not_found(kind, reference.name)
    if kind == api_resources.PODS and _account_name(target) != name:
        raise statuses.bad_request(
            f'cannot bind token for serviceaccount "{name}" to pod running with different '
            "serviceaccount name."
        )
    uid = target["metadata"]["uid"]
    if reference.uid and reference.uid != uid:
        raise statuses.conflict(
            kind,
            reference.name,
            f"the UID in the bound object reference ({reference.uid}) does not match the UID in "
            f"record. The object might have been deleted and then recreated",
        )
    return tokens.Bound(reference.kind, reference.name, uid)


def _account_name(pod: meta.JsonObject) -> str:
    return (pod.get("spec") or {}).get("serviceAccountName") or "default"
