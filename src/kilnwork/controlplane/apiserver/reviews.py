"""Reviews: questions about rights and identities that are posted like objects and never stored.

Used by `app` for `kubectl auth can-i`, `kubectl auth whoami` and k9s, which asks before it shows.
"""

from typing import Any

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import authn, authz, statuses

_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"


def _review(group: str, kind: str) -> resource.Resource:
    plural = f"{kind.lower()}s"
    return resource.Resource(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=False,
    )


_OWN_ACCESS = _review(_AUTHORIZATION, "SelfSubjectAccessReview")
_ACCESS = _review(_AUTHORIZATION, "SubjectAccessReview")
_OWN_IDENTITY = _review(_AUTHENTICATION, "SelfSubjectReview")
_BY_PATH = {(r.group, r.version, r.plural): r for r in (_OWN_ACCESS, _ACCESS, _OWN_IDENTITY)}


def find(group: str, version: str, plural: str) -> resource.Resource | None:
    """The review that a URL path names, or None."""
    return _BY_PATH.get((group, version, plural))


def answer(
    kind: resource.Resource,
    body: meta.JsonObject,
    *,
    user: authn.User,
    authorizer: authz.Authorizer,
) -> meta.JsonObject:
    """The review with its status."""
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise statuses.bad_request("spec must be an object")
    if kind == _OWN_IDENTITY:
        status: dict[str, Any] = {"userInfo": _user_info(user)}
    else:
        whose = user if kind == _OWN_ACCESS else _subject(spec)
        decision = authorizer.allowed(whose, _attributes(spec))
        status = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {},
        "spec": spec,
        "status": status,
    }


def _subject(spec: meta.JsonObject) -> authn.User:
    groups = tuple(str(g) for g in spec.get("groups") or ())
    return authn.User(str(spec.get("user") or ""), groups=groups)


def _user_info(user: authn.User) -> meta.JsonObject:
    info: meta.JsonObject = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _attributes(spec: meta.JsonObject) -> authz.Attributes:
    path = spec.get("nonResourceAttributes")
    if isinstance(path, dict):
        verb = str(path.get("verb") or "")
        return authz.Attributes(verb=verb, path=str(path.get("path") or "/"))
    wanted = spec.get("resourceAttributes")
    if not isinstance(wanted, dict):
        raise statuses.bad_request(
            "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        )
    texts = {name: str(value or "") for name, value in wanted.items()}
    return authz.Attributes(
        verb=texts.get("verb", ""),
        api_group=texts.get("group", ""),
        resource=texts.get("resource", ""),
        subresource=texts.get("subresource", ""),
        namespace=texts.get("namespace", ""),
        name=texts.get("name", ""),
    )
