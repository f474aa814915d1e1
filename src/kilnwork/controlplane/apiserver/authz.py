"""Who may do what: RBAC as Kubernetes has it, from the Roles and RoleBindings of the store.

Used once per request, after `authn`, and by admission against escalation. Members of
`system:masters` may do everything; the group `system:nodes` may do what a node needs. Cluster roles
are not stored: `view`, `edit`, `admin` and `cluster-admin` are built in, for RoleBindings.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import authn
from kilnwork.controlplane.apiserver import lookup as lookups

Rule = dict[str, Any]
"""An rbac PolicyRule as JSON: verbs, apiGroups, resources, resourceNames."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `path` only for what is no resource; `namespace` empty across all.

    `name` may come from a field selector `metadata.name=…` of a list or watch, as in Kubernetes.
    """

    verb: str
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """`pods` or `pods/log`, as rules write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Decision(msgspec.Struct, frozen=True):
    """Allowed or not. `reason` names the binding that allows; empty when nothing does."""

    allowed: bool
    reason: str = ""


DENIED = Decision(allowed=False)

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_ALL = "*"


def _rule(groups: str, resources: str, verbs: list[str] | str) -> Rule:
    wanted = verbs.split() if isinstance(verbs, str) else verbs
    listed = ["" if g == "core" else g for g in groups.split()]
    return {"apiGroups": listed, "resources": resources.split(), "verbs": wanted}


_NODE_RULES: tuple[Rule, ...] = (
    _rule("core", "nodes nodes/status", "get list watch create update patch delete"),
    _rule("core", "pods", "get list watch delete"),
    _rule("core", "pods/status", "get update patch"),
    _rule("core", "secrets configmaps", "get list watch"),
    _rule("core", "serviceaccounts", "get"),
    _rule("core", "serviceaccounts/token", "create"),
    _rule("core events.k8s.io", "events", "create update patch"),
    _rule("coordination.k8s.io", "leases", "get create update patch delete"),
)
"""Node authorizer (KEP-279) without the graph: all nodes here belong to the server's owner."""

_EVERYBODY: tuple[Rule, ...] = (
    _rule(
        "authorization.k8s.io",
        "selfsubjectaccessreviews selfsubjectrulesreviews",
        "create",
    ),
    _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
)
"""ClusterRole `system:basic-user`."""

_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/openapi")
"""ClusterRole `system:discovery`: for everybody who is authenticated."""

_NAMESPACED_READ = "pods pods/log pods/status configmaps serviceaccounts events"
_OUR_KINDS = "tasks tasks/status taskobjects taskclusters taskclusters/status"
_VIEW = (
    _rule("core", _NAMESPACED_READ, _READ),
    _rule("coordination.k8s.io", "leases", _READ),
    _rule(resource.GROUP, _OUR_KINDS, _READ),
)
_EDIT = (
    *_VIEW,
    _rule("core", "secrets", [*_READ, *_WRITE]),
    _rule("core", "pods configmaps serviceaccounts events", _WRITE),
    _rule("core", "pods/attach pods/exec pods/portforward", [*_READ, *_WRITE]),
    _rule("core", "pods/eviction serviceaccounts/token", "create"),
    _rule("coordination.k8s.io", "leases", _WRITE),
    _rule(resource.GROUP, "tasks taskobjects taskclusters", _WRITE),
)
_RBAC = "rbac.authorization.k8s.io"
_CLUSTER_ROLES: dict[str, tuple[Rule, ...]] = {
    "view": _VIEW,
    "edit": _EDIT,
    "admin": (*_EDIT, _rule(_RBAC, "roles rolebindings", [*_READ, *_WRITE])),
    "cluster-admin": ({"apiGroups": [_ALL], "resources": [_ALL], "verbs": [_ALL]},),
}


class Authorizer:
    """Decides from the stored Roles and RoleBindings, read anew each time."""

    def __init__(self, lookup: lookups.Lookup) -> None:
        self._lookup = lookup

    def allowed(self, user: authn.User, attributes: Attributes) -> Decision:
        """Whether `user` may do it; `refusal` makes the text for a 403."""
        if user.is_admin:
            return Decision(allowed=True)
        if attributes.path:
            return _path_decision(user, attributes)
        for source, rule in self._rules(user, attributes.namespace):
            if _covers(rule, attributes):
                return Decision(allowed=True, reason=f"RBAC: allowed by {source}")
        return DENIED

    def missing(self, user: authn.User, namespace: str, rules: Iterable[Rule]) -> list[Rule]:
        """Those of `rules` that `user` does not hold, whole: what may not be granted to others."""
        if user.is_admin:
            return []
        held = [rule for _, rule in self._rules(user, namespace)]
        return [
            rule
            for rule in rules
            if not all(any(_covers(h, a) for h in held) for a in _single(rule, namespace))
        ]

    def held(self, user: authn.User, namespace: str) -> list[Rule]:
        """All rules that hold for `user` in a namespace, with those of other paths."""
        found = [rule for _, rule in self._rules(user, namespace)]
        if user.is_admin:
            found.append({"apiGroups": [_ALL], "resources": [_ALL], "verbs": [_ALL]})
            found.append({"nonResourceURLs": [_ALL], "verbs": [_ALL]})
        if authn.AUTHENTICATED in user.groups:
            paths = [shown for path in _OPEN_PATHS for shown in (path, f"{path}/*")]
            found.append({"nonResourceURLs": paths, "verbs": ["get"]})
        return found

    def role_rules(self, namespace: str, reference: meta.JsonObject) -> tuple[Rule, ...] | None:
        """The rules behind a roleRef, or None when there is no such role."""
        name = reference.get("name", "")
        if reference.get("kind") == "ClusterRole":
            return _CLUSTER_ROLES.get(name)
        role = self._lookup.get(resource.ROLES, namespace, name)
        return None if role is None else tuple(role.get("rules") or ())

    def _rules(self, user: authn.User, namespace: str) -> Iterator[tuple[str, Rule]]:
        if authn.AUTHENTICATED in user.groups:
            yield from (('ClusterRoleBinding "system:basic-user"', rule) for rule in _EVERYBODY)
        if "system:nodes" in user.groups:
            yield from (("the node authorizer", rule) for rule in _NODE_RULES)
        if not namespace:
            return
        for binding in self._lookup.list(resource.ROLE_BINDINGS, namespace):
            subjects = binding.get("subjects") or ()
            subject = next((s for s in subjects if _is_subject(s, user, namespace)), None)
            if subject is not None:
                reference = binding.get("roleRef") or {}
                source = (
                    f'RoleBinding "{binding["metadata"]["name"]}/{namespace}" '
                    f'of {reference.get("kind")} "{reference.get("name")}" '
                    f"to {_named(subject, namespace)}"
                )
                rules = self.role_rules(namespace, reference) or ()
                yield from ((source, rule) for rule in rules)


def refusal(user: authn.User, attributes: Attributes, *, reason: str = "") -> str:
    """The message of a 403, as k8s.io/apiserver writes it."""
    if attributes.path:
        cannot = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return f"forbidden: {cannot}{f': {reason}' if reason else ''}"
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    qualified = (
        f"{attributes.resource}.{attributes.api_group}"
        if attributes.api_group
        else attributes.resource
    )
    what = f'{qualified} "{attributes.name}"' if attributes.name else qualified
    text = (
        f'{what} is forbidden: User "{user.name}" cannot {attributes.verb} resource '
        f'"{attributes.full_resource}" in API group "{attributes.api_group}" {where}'
    )
    return f"{text}: {reason}" if reason else text


def _path_decision(user: authn.User, attributes: Attributes) -> Decision:
    path = attributes.path
    known = any(path == p or path.startswith(f"{p}/") for p in _OPEN_PATHS)
    if known and attributes.verb == "get" and authn.AUTHENTICATED in user.groups:
        return Decision(allowed=True, reason='RBAC: allowed by "system:discovery"')
    return DENIED


def _named(subject: meta.JsonObject, namespace: str) -> str:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'{kind} "{name}"'


def _is_subject(subject: meta.JsonObject, user: authn.User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(user.name == name)
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        home = subject.get("namespace") or namespace
        return user.name == f"system:serviceaccount:{home}:{name}"
    return False


def _covers(rule: Rule, attributes: Attributes) -> bool:
    verbs, groups = rule.get("verbs") or (), rule.get("apiGroups") or ()
    if _ALL not in verbs and attributes.verb not in verbs:
        return False
    if _ALL not in groups and attributes.api_group not in groups:
        return False
    if not _resource_matches(rule.get("resources") or (), attributes):
        return False
    names = rule.get("resourceNames") or ()
    return not names or attributes.name in names


def _resource_matches(resources: Iterable[str], attributes: Attributes) -> bool:
    anything = f"*/{attributes.subresource}" if attributes.subresource else _ALL
    return any(r in (_ALL, attributes.full_resource, anything) for r in resources)


def _single(rule: Rule, namespace: str) -> Iterator[Attributes]:
    """A rule taken apart into the questions that it answers with yes."""
    for verb in rule.get("verbs") or ():
        for group in rule.get("apiGroups") or ():
            for full in rule.get("resources") or ():
                plural, _, sub = full.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Attributes(
                        verb=verb,
                        api_group=group,
                        resource=plural,
                        subresource=sub,
                        namespace=namespace,
                        name=name,
                    )
