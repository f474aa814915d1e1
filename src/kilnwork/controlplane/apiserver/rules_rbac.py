"""Validation of Roles and RoleBindings, and prevention of privilege escalation.

Used by admission. Messages are those of k8s.io/kubernetes/pkg/apis/rbac/validation and
pkg/registry/rbac/validation.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import authn, authz, causes, statuses

_GROUP = api_resources.ROLES.group
_EVERYTHING: tuple[authz.Rule, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)


def default_role_binding(binding: meta.JsonObject) -> None:
    """Fill in the API groups of the role and of the subjects."""
    role = binding.get("roleRef")
    if role is not None and not role.get("apiGroup"):
        role["apiGroup"] = _GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            # Service accounts are in the core group, whose name is empty.
            subject["apiGroup"] = _GROUP


def validate_role(role: meta.JsonObject, *, cluster: bool = False) -> Iterator[causes.Cause]:
    """Yield the problems of a Role; a ClusterRole may also have rules for non-resource URLs."""
    for position, rule in enumerate(role.get("rules") or ()):
        field = f"rules[{position}]"
        if not rule.get("verbs"):
            yield causes.required(f"{field}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            yield from _wrong_urls(rule, field, cluster=cluster)
            continue
        if not rule.get("apiGroups"):
            yield causes.required(
                f"{field}.apiGroups", "resource rules must supply at least one api group"
            )
        if not rule.get("resources"):
            yield causes.required(
                f"{field}.resources", "resource rules must supply at least one resource"
            )


def _wrong_urls(rule: dict[str, Any], field: str, *, cluster: bool) -> Iterator[causes.Cause]:
    shown = ", ".join(f'"{url}"' for url in rule["nonResourceURLs"])
    if not cluster:
        why = "namespaced rules cannot apply to non-resource URLs"
    elif any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
        why = "rules cannot apply to both regular resources and non-resource URLs"
    else:
        return
    message = f"Invalid value: []string{{{shown}}}: {why}"
    yield causes.Cause(f"{field}.nonResourceURLs", "FieldValueInvalid", message)


def validate_role_binding(
    binding: meta.JsonObject, *, cluster: bool = False
) -> Iterator[causes.Cause]:
    """Yield the problems of a RoleBinding; a ClusterRoleBinding binds only ClusterRoles."""
    role = binding.get("roleRef") or {}
    if role.get("apiGroup") != _GROUP:
        yield causes.unsupported("roleRef.apiGroup", role.get("apiGroup") or "", [_GROUP])
    kinds = ["ClusterRole"] if cluster else ["Role", "ClusterRole"]
    if role.get("kind") not in kinds:
        yield causes.unsupported("roleRef.kind", role.get("kind") or "", kinds)
    if not role.get("name"):
        yield causes.required("roleRef.name")
    for position, subject in enumerate(binding.get("subjects") or ()):
        yield from _validate_subject(subject, f"subjects[{position}]")


def validate_role_binding_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> Iterator[causes.Cause]:
    """Yield a cause if roleRef changes.

    Otherwise a user who may edit a binding could bind any role.
    """
    if old.get("roleRef") != new.get("roleRef"):
        yield causes.invalid("roleRef", new.get("roleRef"), "cannot change roleRef")


def guard_role(role: meta.JsonObject, *, user: authn.User, authorizer: authz.Authorizer) -> None:
    """Raise 403 unless `user` has every permission in the (cluster) role, or may `escalate`.

    An aggregationRule can select any role, also one created later, so it requires all permissions
    (k8s.io/kubernetes pkg/registry/rbac/clusterrole/policybased/storage.go).
    """
    name = role["metadata"].get("name", "")
    gathers = bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))
    if gathers and authorizer.missing_rules(user, "", _EVERYTHING):
        attributes = authz.Attributes(
            verb="escalate",
            api_group=_GROUP,
            resource=api_resources.CLUSTER_ROLES.plural,
            name=name,
        )
        if not authorizer.allowed(user, attributes).allowed:
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise statuses.refused(api_resources.CLUSTER_ROLES, name, why)
    _guard(
        api_resources.ROLES if role["metadata"].get("namespace") else api_resources.CLUSTER_ROLES,
        role,
        rules=role.get("rules") or (),
        verb="escalate",
        user=user,
        authorizer=authorizer,
    )


def guard_role_binding(
    binding: meta.JsonObject, *, user: authn.User, authorizer: authz.Authorizer
) -> None:
    """Raise 403 unless `user` has every permission of the role, or may `bind` it.

    Raises 404 if the role does not exist.
    """
    if user.is_admin:
        return
    namespace, role = binding["metadata"].get("namespace", ""), binding.get("roleRef") or {}
    # Resolved after the check for an admin, who may bind a role that does not exist yet.
    rules = authorizer.role_rules(namespace, role)
    kind = api_resources.ROLE_BINDINGS if namespace else api_resources.CLUSTER_ROLE_BINDINGS
    if rules is None:
        raise statuses.not_found(kind, role.get("name", ""))
    _guard(
        kind,
        binding,
        rules=rules,
        verb="bind",
        user=user,
        authorizer=authorizer,
    )


def _guard(
    kind: api_resources.Resource,
    obj: meta.JsonObject,
    *,
    rules: Iterable[authz.Rule],
    verb: str,
    user: authn.User,
    authorizer: authz.Authorizer,
) -> None:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    missing = authorizer.missing_rules(user, namespace, rules)
    if not missing:
        return
    role = {"kind": "Role" if namespace else "ClusterRole", "name": metadata.get("name", "")}
    # `escalate` is a permission for the role itself, `bind` for the role that is referred to.
    if verb == "bind":
        role = obj["roleRef"]
    special = authz.Attributes(
        verb=verb,
        api_group=_GROUP,
        resource=f"{role['kind'].lower()}s",
        namespace=namespace,
        name=role.get("name", ""),
    )
    if authorizer.allowed(user, special).allowed:
        return
    groups = " ".join(f'"{group}"' for group in user.groups)
    listed = "\n".join(sorted(_compact(rule) for rule in missing))
    raise statuses.refused(
        kind,
        metadata.get("name", ""),
        f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions '
        f"not currently held:\n{listed}",
    )


def _compact(rule: authz.Rule) -> str:
    parts = []
    for key, title in (
        ("apiGroups", "APIGroups"),
        ("resources", "Resources"),
        ("nonResourceURLs", "NonResourceURLs"),
        ("resourceNames", "ResourceNames"),
        ("verbs", "Verbs"),
    ):
        if rule.get(key):
            listed = " ".join(f'"{value}"' for value in rule[key])
            parts.append(f"{title}:[{listed}]")
    return f"{{{', '.join(parts)}}}"


def _validate_subject(subject: dict[str, Any], field: str) -> Iterator[causes.Cause]:
    if not subject.get("name"):
        yield causes.required(f"{field}.name")
    kind, group = subject.get("kind"), subject.get("apiGroup") or ""
    if kind == "ServiceAccount":
        if group:
            yield causes.unsupported(f"{field}.apiGroup", group, [""])
        if not subject.get("namespace"):
            yield causes.required(f"{field}.namespace")
    elif kind in ("User", "Group"):
        if group != _GROUP:
            yield causes.unsupported(f"{field}.apiGroup", group, [_GROUP])
    else:
        kinds = ["ServiceAccount", "User", "Group"]
        yield causes.unsupported(f"{field}.kind", kind or "", kinds)
