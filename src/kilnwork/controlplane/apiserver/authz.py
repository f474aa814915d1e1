"""Authorization: RBAC as in Kubernetes, from the roles and bindings in the store.

Used once per request, after `authn`, and by admission to prevent privilege escalation. Members of
`system:masters` may do everything, the group `system:nodes` may do what a node needs, and every
authenticated user may use discovery. All other permissions come from stored (cluster) roles and
bindings; aggregated cluster roles are resolved when they are used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta, selectors
from kilnwork.controlplane.apiserver import authn
from kilnwork.controlplane.apiserver import lookup_interface as lookups

Rule = dict[str, Any]
"""An rbac PolicyRule as JSON: verbs, apiGroups, resources, resourceNames."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes of a request on which the authorization decision depends."""

    verb: str
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    """Empty for all namespaces and for cluster-scoped resources; for a Namespace, its own name."""
    name: str = ""
    """May come from the field selector `metadata.name=…` of a list or watch, as in Kubernetes."""
    path: str = ""
    """Only for non-resource requests."""

    @property
    def full_resource(self) -> str:
        """Return the resource as rules write it: `pods` or `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class AccessDecision(msgspec.Struct, frozen=True):
    """Decision on a request: whether it is allowed.

    `reason` names the binding or built-in rule that allows it; empty when denied, and for
    `system:masters`.
    """

    allowed: bool
    reason: str = ""


DENIED = AccessDecision(allowed=False)

_ALL = "*"


def _rule(groups: str, resources: str, verbs: str) -> Rule:
    listed = ["" if g == "core" else g for g in groups.split()]
    return {"apiGroups": listed, "resources": resources.split(), "verbs": verbs.split()}


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
    {
        "verbs": ["get"],
        "nonResourceURLs": [
            *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez"),
            *("/openapi", "/openapi/*", "/readyz", "/version", "/version/"),
        ],
    },
)
"""ClusterRoles `system:basic-user` and `system:discovery`."""

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


class Authorizer:
    """Authorizer of requests by the stored Roles and RoleBindings, which it reads for each
    request.
    """

    def __init__(self, lookup: lookups.Lookup) -> None:
        self._lookup = lookup

    def allowed(self, user: authn.User, attributes: Attributes) -> AccessDecision:
        """Decide whether a user may send a request with the given attributes."""
        # Without a look at the roles, so that no change of them can lock this group out.
        if user.is_admin:
            return AccessDecision(allowed=True)
        for source, rule in self._rules(user, attributes.namespace):
            if _covers(rule, attributes):
                return AccessDecision(allowed=True, reason=f"RBAC: allowed by {source}")
        return DENIED

    def missing_rules(self, user: authn.User, namespace: str, rules: Iterable[Rule]) -> list[Rule]:
        """Return the permissions in `rules` that a user does not have.

        The user may not grant these to others.
        """
        return (
            []
            if user.is_admin
            else missing_rules(self.rules_of_user(user, namespace), rules, namespace)
        )

    def rules_of_user(self, user: authn.User, namespace: str) -> list[Rule]:
        return [rule for _, rule in self._rules(user, namespace)]

    def role_rules(self, namespace: str, reference: meta.JsonObject) -> tuple[Rule, ...] | None:
        """Return the rules of the role that a roleRef names, or None when there is no such role."""
        name = reference.get("name", "")
        if reference.get("kind") == "ClusterRole":
            role = self._lookup.get(api_resources.CLUSTER_ROLES, None, name)
            return None if role is None else (*_rules_of(role), *self.aggregated_rules(role))
        role = self._lookup.get(api_resources.ROLES, namespace, name)
        return None if role is None else _rules_of(role)

    def aggregated_rules(self, role: meta.JsonObject) -> Iterator[Rule]:
        """Yield the rules of all cluster roles that an aggregationRule selects, recursively."""
        # Roles may select each other, or themselves.
        seen = {role["metadata"]["name"]}
        waiting = [role]
        while waiting:
            chosen = _selectors(waiting.pop())
            for other in self._lookup.list(api_resources.CLUSTER_ROLES) if chosen else ():
                metadata = other["metadata"]
                if metadata["name"] in seen:
                    continue
                if any(one.matches(metadata.get("labels")) for one in chosen):
                    seen.add(metadata["name"])
                    waiting.append(other)
                    yield from _rules_of(other)

    def _rules(self, user: authn.User, namespace: str) -> Iterator[tuple[str, Rule]]:
        if authn.AUTHENTICATED in user.groups:
            yield from ((_discovery_source(), rule) for rule in _EVERYBODY)
        if "system:nodes" in user.groups:
            yield from (("the node authorizer", rule) for rule in _NODE_RULES)
        for binding in self._lookup.list(api_resources.CLUSTER_ROLE_BINDINGS):
            yield from self._granted(binding, user, "")
        # A RoleBinding never grants anything for all namespaces together.
        if namespace:
            for binding in self._lookup.list(api_resources.ROLE_BINDINGS, namespace):
                yield from self._granted(binding, user, namespace)

    def _granted(
        self, binding: meta.JsonObject, user: authn.User, namespace: str
    ) -> Iterator[tuple[str, Rule]]:
        subjects = binding.get("subjects") or ()
        subject = next((s for s in subjects if _is_subject(s, user, namespace)), None)
        if subject is None:
            return
        reference = binding.get("roleRef") or {}
        kind, name = "ClusterRoleBinding", binding["metadata"]["name"]
        if namespace:
            kind, name = "RoleBinding", f"{name}/{namespace}"
        source = (
            f'{kind} "{name}" of {reference.get("kind")} "{reference.get("name")}" '
            f"to {_subject_text(subject, namespace)}"
        )
        yield from ((source, rule) for rule in self.role_rules(namespace, reference) or ())


def missing_rules(held: Sequence[Rule], wanted: Iterable[Rule], namespace: str = "") -> list[Rule]:
    """Return the permissions in `wanted` that the rules in `held` do not grant.

    The result has one rule per resource. Follows Covers of
    k8s.io/component-helpers/auth/rbac/validation.
    """
    found: dict[tuple[str, ...], Rule] = {}
    for rule in wanted:
        for asked in _split_rule(rule, namespace):
            # A wanted `*` is covered only by a `*`: it also grants what will exist later.
            if not any(_covers(one, asked) for one in held):
                merged = found.setdefault(_subject_of(asked), _rule_without_verbs(asked))
                if asked.verb not in merged["verbs"]:
                    merged["verbs"].append(asked.verb)
    return list(found.values())


def denial_message(user: authn.User, attributes: Attributes, *, reason: str = "") -> str:
    """Return the message of a 403, as k8s.io/apiserver writes it."""
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


def _discovery_source() -> str:
    name = '"system:discovery"'
    return f'ClusterRoleBinding {name} of ClusterRole {name} to Group "{authn.AUTHENTICATED}"'


def _rules_of(role: meta.JsonObject) -> tuple[Rule, ...]:
    return tuple(role.get("rules") or ())


def _selectors(role: meta.JsonObject) -> list[selectors.LabelSelector]:
    """Return the label selectors of an aggregationRule, except those with an unknown operator."""
    found = []
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        terms = [
            selectors.Requirement(key, "in", (value,))
            for key, value in (selector.get("matchLabels") or {}).items()
        ]
        for term in selector.get("matchExpressions") or ():
            operator = _OPERATORS.get(term.get("operator"), "")
            values = tuple(term.get("values") or ())
            terms.append(selectors.Requirement(term.get("key", ""), operator, values))
        if all(term.operator for term in terms):
            found.append(selectors.LabelSelector(tuple(terms)))
    return found


def _subject_text(subject: meta.JsonObject, namespace: str) -> str:
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
    if attributes.path:
        urls = rule.get("nonResourceURLs") or ()
        return any(_url_matches(url, attributes.path) for url in urls)
    if _ALL not in groups and attributes.api_group not in groups:
        return False
    if not _resource_matches(rule.get("resources") or (), attributes):
        return False
    names = rule.get("resourceNames") or ()
    # A rule with resourceNames covers no request without a name (create, list).
    return not names or attributes.name in names


def _url_matches(url: str, path: str) -> bool:
    """Return whether a nonResourceURL matches a path; `*` at its end matches anything."""
    return url == path or (url.endswith(_ALL) and path.startswith(url.rstrip(_ALL)))


def _resource_matches(resources: Iterable[str], attributes: Attributes) -> bool:
    # `*` includes all subresources; `*/scale` is that subresource of every resource.
    anything = f"*/{attributes.subresource}" if attributes.subresource else _ALL
    return any(r in (_ALL, attributes.full_resource, anything) for r in resources)


def _split_rule(rule: Rule, namespace: str) -> Iterator[Attributes]:
    """Split a rule into the single permissions that it grants."""
    for verb in rule.get("verbs") or ():
        for url in rule.get("nonResourceURLs") or ():
            yield Attributes(verb=verb, path=url)
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


def _subject_of(asked: Attributes) -> tuple[str, ...]:
    return (asked.path, asked.api_group, asked.full_resource, asked.name)


def _rule_without_verbs(asked: Attributes) -> Rule:
    """Return a rule for the resource, name or path of `asked`, without verbs."""
    if asked.path:
        return {"nonResourceURLs": [asked.path], "verbs": []}
    named = {"resourceNames": [asked.name]} if asked.name else {}
    return {
        "apiGroups": [asked.api_group],
        "resources": [asked.full_resource],
        **named,
        "verbs": [],
    }
