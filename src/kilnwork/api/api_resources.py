"""Resources of a Kubernetes API server: group, version, kind, plural.

Used to build every URL. Kubernetes' own resources are here, those of kilnwork in `kinds`.
"""

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a Kubernetes API server. `group` is empty for the core group."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, or only the plural in the core group: the name used in error texts."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def base(self, namespace: str | None = None) -> str:
        """Return the URL path of the collection; across all namespaces if `namespace` is None."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace is not None:
            return f"{root}/namespaces/{namespace}/{self.plural}"
        return f"{root}/{self.plural}"


def _core(
    kind: str, plural: str, *short: str, namespaced: bool = True, all_: bool = False
) -> Resource:
    return Resource(
        group="",
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=short,
        categories=("all",) if all_ else (),
    )


def _rbac(kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    return Resource(
        group="rbac.authorization.k8s.io",
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
    )


def _review_resource(group: str, kind: str) -> Resource:
    return Resource(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        namespaced=False,
    )


NAMESPACES = _core("Namespace", "namespaces", "ns", namespaced=False)
NODES = _core("Node", "nodes", "no", namespaced=False)
PODS = _core("Pod", "pods", "po", all_=True)
SECRETS = _core("Secret", "secrets")
CONFIG_MAPS = _core("ConfigMap", "configmaps", "cm")
SERVICE_ACCOUNTS = _core("ServiceAccount", "serviceaccounts", "sa")
EVENTS = _core("Event", "events", "ev")
LEASES = Resource(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", singular="lease"
)
ROLES = _rbac("Role", "roles")
ROLE_BINDINGS = _rbac("RoleBinding", "rolebindings")
TOKEN_REVIEWS = _review_resource("authentication.k8s.io", "TokenReview")
SUBJECT_ACCESS_REVIEWS = _review_resource("authorization.k8s.io", "SubjectAccessReview")
CLUSTER_ROLES = _rbac("ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
)

BUILT_IN = (
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    EVENTS,
    LEASES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
)
