"""The default cluster roles that every Kubernetes has from its start.

`cluster` creates those that are missing at each start and adds missing rules; users bind `view`,
`edit` and `admin` in their namespaces and may add rules. As in Kubernetes
(k8s.io/component-helpers/auth/rbac/reconciliation), a role with the annotation `autoupdate:
"false"` is left alone. The permissions of every authenticated user and every node are in `authz`
instead, so that no user can remove them by mistake.
"""

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.apiserver import authn, authz, object_writer, statuses, write_types

_RBAC = api_resources.CLUSTER_ROLES.group
_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE = f"{_RBAC}/aggregate-to-"


def _rule(group: str, resources: str, verbs: list[str]) -> meta.JsonObject:
    return {"verbs": verbs, "apiGroups": [group], "resources": resources.split()}


_NAMESPACED_READ = "pods pods/log pods/status configmaps serviceaccounts events"
_VIEW = [
    _rule("", _NAMESPACED_READ, _READ),
    _rule("coordination.k8s.io", "leases", _READ),
]
_EDIT = [
    _rule("", "secrets", [*_READ, *_WRITE]),
    _rule("", "pods configmaps serviceaccounts events", _WRITE),
    _rule("", "pods/attach pods/exec pods/portforward", [*_READ, *_WRITE]),
    _rule("", "pods/eviction serviceaccounts/token", ["create"]),
    # As in the real role: a user who may run Pods under an account has its rights anyway.
    _rule("", "serviceaccounts", ["impersonate"]),
    _rule("coordination.k8s.io", "leases", _WRITE),
]
_ADMIN = [_rule(_RBAC, "roles rolebindings", [*_READ, *_WRITE])]
_EVERYTHING = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


def _role(name: str, rules: list[meta.JsonObject], *, into: str = "") -> meta.JsonObject:
    """Return a default cluster role with the given rules.

    `into` names the default role that aggregates this one by its label.
    """
    labels = {**_LABELS, f"{_AGGREGATE}{into}": "true"} if into else _LABELS
    metadata = {"name": name, "labels": labels, "annotations": {_AUTOUPDATE: "true"}}
    role: meta.JsonObject = {"metadata": metadata, "rules": rules}
    if name in ("view", "edit", "admin"):
        selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return role


def roles(extended: installed_kind_types.Extensions) -> list[meta.JsonObject]:
    """Return the default cluster roles.

    The roles view, edit and admin each include the one before.
    """
    view = [*_VIEW, *extended.view]
    edit = [*view, *_EDIT, *extended.edit]
    return [
        _role("view", view, into="edit"),
        _role("edit", edit, into="admin"),
        _role("admin", [*edit, *_ADMIN]),
        _role("cluster-admin", _EVERYTHING),
    ]


_BINDING: meta.JsonObject = {
    "metadata": {"name": "cluster-admin", "labels": _LABELS},
    "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "Group", "name": authn.MASTERS, "apiGroup": _RBAC}],
}


def is_default_role(role: meta.JsonObject) -> bool:
    """Return whether a role has the labels of the default roles of this module."""
    labels = role["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in _LABELS.items())


async def ensure(
    writer: object_writer.ObjectWriter, extended: installed_kind_types.Extensions
) -> None:
    """Create missing default roles and their binding, and add missing rules to stored ones."""
    wanted = [(api_resources.CLUSTER_ROLES, role) for role in roles(extended)]
    wanted.append((api_resources.CLUSTER_ROLE_BINDINGS, _BINDING))
    for kind, obj in wanted:
        named = write_types.target_of(kind, "", obj["metadata"]["name"])
        stored = writer.store.get(named.key)
        try:
            if stored is None:
                await writer.create(
                    write_types.target_of(kind, "", ""), obj, write_types.WriteContext()
                )
            elif kind is api_resources.CLUSTER_ROLES:
                await _add_rules(writer, named, stored.decode(), obj["rules"])
        except statuses.StatusError as error:
            if error.code != 409:  # another client was faster
                raise


async def _add_rules(
    writer: object_writer.ObjectWriter,
    target: write_types.WriteTarget,
    role: meta.JsonObject,
    wanted: list[meta.JsonObject],
) -> None:
    """Add the rules that an existing role lacks, such as those of newly installed kinds."""
    annotations = role["metadata"].get("annotations") or {}
    missing = authz.missing_rules(role.get("rules") or [], wanted)
    if not missing or not is_default_role(role) or annotations.get(_AUTOUPDATE) == "false":
        return
    await writer.change(
        target,
        lambda obj: obj | {"rules": [*(obj.get("rules") or []), *missing]},
        write_types.WriteContext(),
    )
