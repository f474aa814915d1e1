"""Reviews: requests about permissions and identities that are posted like objects and never stored.

Used by `app` for `kubectl auth can-i`, `kubectl auth whoami`, k9s (which checks permissions before
it shows a view), and for servers that authenticate their own clients here. Error messages are those
of k8s.io/kubernetes/pkg/apis/authorization/validation.
"""

from collections.abc import Callable

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import authn, authz, requests, statuses
from kilnwork.controlplane.apiserver import tokens as tokens_

_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_EITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def _review(group: str, kind: str, *, namespaced: bool = False) -> api_resources.Resource:
    plural = f"{kind.lower()}s"
    return api_resources.Resource(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
    )


_TOKEN = _review(_AUTHENTICATION, "TokenReview")
_OWN_IDENTITY = _review(_AUTHENTICATION, "SelfSubjectReview")
_OWN_ACCESS = _review(_AUTHORIZATION, "SelfSubjectAccessReview")
_OWN_RULES = _review(_AUTHORIZATION, "SelfSubjectRulesReview")
_ACCESS = _review(_AUTHORIZATION, "SubjectAccessReview")
_LOCAL_ACCESS = _review(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True)

KINDS = (_TOKEN, _OWN_IDENTITY, _OWN_ACCESS, _OWN_RULES, _ACCESS, _LOCAL_ACCESS)
_BY_PATH = {(r.group, r.version, r.plural): r for r in KINDS}


def find(group: str, version: str, plural: str) -> api_resources.Resource | None:
    """Return the kind of review that a URL path names, or None."""
    return _BY_PATH.get((group, version, plural))


class Reviewer(msgspec.Struct, frozen=True):
    """Evaluates reviews by the same rules that authorize requests."""

    authenticator: authn.Authenticator
    authorizer: authz.Authorizer

    def review(self, request: requests.ApiRequest, body: meta.JsonObject) -> meta.JsonObject:
        """Return the review with its status. Raises 400 or 422 for an invalid review."""
        kind = request.served
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise statuses.bad_request("spec must be an object")
        reviews: dict[str, Callable[[requests.ApiRequest, meta.JsonObject], meta.JsonObject]] = {
            _TOKEN.kind: self._token,
            _OWN_IDENTITY.kind: lambda request, _: {"userInfo": _user_info(request.user)},
            _OWN_ACCESS.kind: self._access,
            _OWN_RULES.kind: self._rules,
            _ACCESS.kind: self._access,
            _LOCAL_ACCESS.kind: self._access,
        }
        status = reviews[kind.kind](request, spec)
        # Go encodes the creation time of an object that was never stored as null.
        metadata: meta.JsonObject = {"creationTimestamp": None}
        if request.namespace:
            metadata["namespace"] = request.namespace
        shown = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if kind != _OWN_IDENTITY:
            # The real registry returns a SelfSubjectRulesReview without the requested spec.
            shown["spec"] = {} if kind == _OWN_RULES else spec
        return {**shown, "status": status}

    def _token(self, _: requests.ApiRequest, spec: meta.JsonObject) -> meta.JsonObject:
        token = spec.get("token")
        if not isinstance(token, str) or not token:
            raise statuses.bad_request("token is required for TokenReview in authentication")
        for audience in spec.get("audiences") or [tokens_.API_AUDIENCE]:
            user = self.authenticator.token_user(token, audience=str(audience))
            if user is not None:
                shown = _user_info(user)
                return {"authenticated": True, "user": shown, "audiences": [audience]}
        # Go omits `authenticated` when it is false, but does not omit an empty struct.
        return {"user": {}, "error": "invalid bearer token"}

    def _access(self, request: requests.ApiRequest, spec: meta.JsonObject) -> meta.JsonObject:
        local = request.served == _LOCAL_ACCESS
        attributes = _attributes(request, spec, local=local)
        user = request.user
        if request.served != _OWN_ACCESS:
            user = _subject(request, spec)
        decision = self.authorizer.allowed(user, attributes)
        reason = {"reason": decision.reason} if decision.reason else {}
        return {"allowed": decision.allowed, **reason}

    def _rules(self, request: requests.ApiRequest, spec: meta.JsonObject) -> meta.JsonObject:
        namespace = spec.get("namespace")
        if not isinstance(namespace, str) or not namespace:
            raise statuses.bad_request("no namespace on request")
        rules = self.authorizer.rules_of_user(request.user, namespace)
        return {
            "resourceRules": [rule for rule in rules if "resources" in rule],
            "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
            "incomplete": False,
        }


def _subject(request: requests.ApiRequest, spec: meta.JsonObject) -> authn.User:
    # The user has exactly the given groups: not even system:authenticated is added.
    groups = tuple(str(g) for g in spec.get("groups") or ())
    name = str(spec.get("user") or "")
    if not name and not groups:
        why = 'Invalid value: "": at least one of user or group must be specified'
        raise _invalid(request, "spec.user", why)
    return authn.User(name, groups=groups)


def _user_info(user: authn.User) -> meta.JsonObject:
    info: meta.JsonObject = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _attributes(
    request: requests.ApiRequest, spec: meta.JsonObject, *, local: bool
) -> authz.Attributes:
    path, resource_attributes = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if isinstance(path, dict) and (local or isinstance(resource_attributes, dict)):
        shown = ", ".join(f'{k.capitalize()}:"{path.get(k) or ""}"' for k in ("path", "verb"))
        why = (
            "disallowed on this kind of request"
            if local
            else "cannot be specified in combination with resourceAttributes"
        )
        message = f"Invalid value: authorization.NonResourceAttributes{{{shown}}}: {why}"
        raise _invalid(request, "spec.nonResourceAttributes", message)
    if isinstance(path, dict):
        verb = str(path.get("verb") or "")
        return authz.Attributes(verb=verb, path=str(path.get("path") or "/"))
    if not isinstance(resource_attributes, dict):
        raise _invalid(request, "spec.resourceAttributes", f'Invalid value: "null": {_EITHER}')
    texts = {name: str(value or "") for name, value in resource_attributes.items()}
    if local and texts.get("namespace", "") != request.namespace:
        message = f'Invalid value: "{texts.get("namespace", "")}": must match metadata.namespace'
        raise _invalid(request, "spec.resourceAttributes.namespace", message)
    return authz.Attributes(
        verb=texts.get("verb", ""),
        api_group=texts.get("group", ""),
        resource=texts.get("resource", ""),
        subresource=texts.get("subresource", ""),
        namespace=texts.get("namespace", ""),
        name=texts.get("name", ""),
    )


def _invalid(request: requests.ApiRequest, field: str, message: str) -> statuses.StatusError:
    """Return a 422 without a kind, as kube-apiserver does."""
    what = request.served
    cause = {"reason": "FieldValueInvalid", "message": message, "field": field}
    return statuses.StatusError(
        422,
        "Invalid",
        f'.{what.group} "" is invalid: {field}: {message}',
        details={"group": what.group, "causes": [cause]},
    )
