"""Table of the built-in kinds: resources, subresources, columns and selectable fields.

Used by routing, discovery, OpenAPI, tables and selectors. Custom kinds have the schema and the
columns of their definitions; `catalog` holds all kinds that are served now. No request handlers
here.
"""

from typing import Any

import msgspec

from kilnwork.api import api_resources
from kilnwork.api import schema_generation as schemas
from kilnwork.controlplane import installed_kind_types

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
_STATUS_VERBS = ("get", "patch", "update")


class PrinterColumn(msgspec.Struct, frozen=True, kw_only=True):
    """Column of the table that `kubectl get` prints for a kind."""

    name: str
    type: str = "string"
    json_path: str = ""
    """Empty where `tables` computes the cell (built-in kinds)."""
    format: str = ""
    priority: int = 0
    """Above 0, the column is shown only with `-o wide`."""
    description: str = ""


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """Subresource of a kind: a path below the path of an object.

    `group`, `version` and `kind` are those of the body if it is another kind.
    """

    name: str
    verbs: tuple[str, ...] = _STATUS_VERBS
    group: str = ""
    version: str = ""
    kind: str = ""


class ScalePaths(msgspec.Struct, frozen=True, kw_only=True):
    """JSON paths of the replica fields of a custom kind: `.spec.replicas`, `.status.replicas`."""

    spec: str
    status: str
    selector: str = ""


# How every stored object begins: `object_writer` assembles its fields in this order.
_FIRST = b'{"apiVersion":"'


class ServedResource(msgspec.Struct, frozen=True, kw_only=True):
    """Description of how one version of a resource is served."""

    resource: api_resources.Resource
    schema: dict[str, Any] | None = None
    """Structural schema of a custom kind; None for built-in kinds."""
    columns: tuple[PrinterColumn, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    selectable: tuple[str, ...] = ()
    """Fields for field selectors besides `metadata.name` and `metadata.namespace`."""
    verbs: tuple[str, ...] = VERBS
    scale: ScalePaths | None = None
    storage_version: str = ""
    """Version in which objects are stored, if a custom kind has several."""
    rules: bool = False
    """Whether the schema has CEL rules that must be evaluated."""
    extension: installed_kind_types.InstalledKind | None = None
    """Admission rules that are registered for the kind; None if there are none."""
    terminating: bool = False
    """Whether the definition is being deleted: clients can then create no objects, and discovery
    lists fewer verbs."""

    @property
    def discovered_verbs(self) -> tuple[str, ...]:
        """Return the verbs that discovery names for the resource."""
        return TERMINATING_VERBS if self.terminating else self.verbs

    @property
    def stored_as(self) -> str:
        """Return the `apiVersion` under which objects are stored, whichever version a request
        uses.
        """
        what = self.resource
        return f"{what.group}/{self.storage_version}" if self.storage_version else what.api_version

    def in_own_version(self, raw: bytes) -> bytes:
        """Return a stored object in this version of the resource.

        Only `apiVersion` is replaced, which is always the first field. This is conversion strategy
        None of a CustomResourceDefinition.
        """
        if not self.storage_version or not raw.startswith(_FIRST):
            return raw
        end = raw.index(b'"', len(_FIRST))
        return _FIRST + self.resource.api_version.encode() + raw[end:]

    @property
    def status_subresource(self) -> bool:
        """Return whether the resource has the subresource `/status`.

        If so, the main path ignores the status, and `/status` ignores everything else.
        """
        return any(s.name == "status" for s in self.subresources)

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource called `name`, or None."""
        return next((s for s in self.subresources if s.name == name), None)

    @property
    def custom(self) -> bool:
        """Return whether the kind is defined by a CustomResourceDefinition."""
        return self.schema is not None


STATUS = Subresource(name="status")
_CONNECT = ("create", "get")


def _name() -> PrinterColumn:
    return PrinterColumn(
        name="Name", format="name", description="Name must be unique within a namespace."
    )


def _columns(*names: str) -> tuple[PrinterColumn, ...]:
    """Return the column Name and the named columns, in the order of Kubernetes.

    `+` marks the columns of `-o wide`.
    """
    shown = [PrinterColumn(name=n.lstrip("+"), priority=int(n.startswith("+"))) for n in names]
    return (_name(), *shown)


_PODS = ServedResource(
    resource=api_resources.PODS,
    columns=_columns(
        "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"
    ),
    subresources=(
        STATUS,
        Subresource(name="ephemeralcontainers"),
        Subresource(name="log", verbs=("get",)),
        Subresource(name="exec", verbs=_CONNECT, kind="PodExecOptions"),
        Subresource(name="attach", verbs=_CONNECT, kind="PodAttachOptions"),
        Subresource(name="portforward", verbs=_CONNECT, kind="PodPortForwardOptions"),
        Subresource(name="binding", verbs=("create",), kind="Binding"),
        Subresource(
            name="eviction", verbs=("create",), group="policy", version="v1", kind="Eviction"
        ),
    ),
    selectable=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
)

_EVENTS = ServedResource(
    resource=api_resources.EVENTS,
    columns=(
        PrinterColumn(name="Last Seen"),
        PrinterColumn(name="Type"),
        PrinterColumn(name="Reason"),
        PrinterColumn(name="Object"),
        PrinterColumn(name="Subobject", priority=1),
        PrinterColumn(name="Source", priority=1),
        PrinterColumn(name="Message"),
        PrinterColumn(name="First Seen", priority=1),
        PrinterColumn(name="Count", priority=1),
        PrinterColumn(name="Name", format="name", priority=1),
    ),
    selectable=(
        *(
            f"involvedObject.{field}"
            for field in (
                "kind",
                "namespace",
                "name",
                "uid",
                "apiVersion",
                "resourceVersion",
                "fieldPath",
            )
        ),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
)

BUILT_IN: tuple[ServedResource, ...] = (
    ServedResource(
        resource=api_resources.NAMESPACES,
        columns=_columns("Status", "Age"),
        subresources=(STATUS, Subresource(name="finalize", verbs=("update",))),
        # The real registry of namespaces does not offer deletecollection.
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
        selectable=("status.phase",),
    ),
    ServedResource(
        resource=api_resources.NODES,
        columns=_columns(
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        subresources=(STATUS,),
        selectable=("spec.unschedulable",),
    ),
    _PODS,
    ServedResource(
        resource=api_resources.SECRETS,
        columns=_columns("Type", "Data", "Age"),
        selectable=("type",),
    ),
    ServedResource(resource=api_resources.CONFIG_MAPS, columns=_columns("Data", "Age")),
    ServedResource(
        resource=api_resources.SERVICE_ACCOUNTS,
        columns=_columns("Secrets", "Age"),
        subresources=(
            Subresource(
                name="token",
                verbs=("create",),
                group="authentication.k8s.io",
                version="v1",
                kind="TokenRequest",
            ),
        ),
    ),
    _EVENTS,
    ServedResource(resource=api_resources.LEASES, columns=_columns("Holder", "Age")),
    ServedResource(
        resource=api_resources.ROLES,
        columns=(_name(), PrinterColumn(name="Created At", type="date")),
    ),
    ServedResource(
        resource=api_resources.ROLE_BINDINGS,
        columns=_columns("Role", "Age", "+Users", "+Groups", "+ServiceAccounts"),
    ),
    ServedResource(
        resource=api_resources.CLUSTER_ROLES,
        columns=(_name(), PrinterColumn(name="Created At", type="date")),
    ),
    ServedResource(
        resource=api_resources.CLUSTER_ROLE_BINDINGS,
        columns=_columns("Role", "Age", "+Users", "+Groups", "+ServiceAccounts"),
    ),
    ServedResource(
        resource=api_resources.CUSTOM_RESOURCE_DEFINITIONS,
        columns=(_name(), PrinterColumn(name="Created At", type="date")),
        subresources=(STATUS,),
    ),
)


_AGE: dict[str, Any] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_SCALE = Subresource(name="scale", group="autoscaling", version="v1", kind="Scale")


def custom(
    kind: api_resources.Resource, version: dict[str, Any], *, storage_version: str = ""
) -> ServedResource:
    """Return how a version of a custom kind is served.

    `version`: the entry in `spec.versions` of its definition.
    """
    columns = [
        PrinterColumn(
            name=c["name"],
            type=c["type"],
            json_path=c["jsonPath"],
            format=c.get("format", ""),
            priority=c.get("priority", 0),
            description=c.get("description")
            or f"Custom resource definition column (in JSONPath format): {c['jsonPath']}",
        )
        # Without columns of its own a kind shows the age, as in Kubernetes.
        for c in version.get("additionalPrinterColumns") or (_AGE,)
    ]
    below = version.get("subresources") or {}
    scale, schema = below.get("scale"), version["schema"]["openAPIV3Schema"]
    return ServedResource(
        resource=kind,
        schema=schema,
        columns=(_name(), *columns),
        subresources=(
            *((STATUS,) if below.get("status") is not None else ()),
            *((_SCALE,) if scale else ()),
        ),
        selectable=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        scale=None
        if not scale
        else ScalePaths(
            spec=scale["specReplicasPath"],
            status=scale["statusReplicasPath"],
            selector=scale.get("labelSelectorPath", ""),
        ),
        storage_version=storage_version,
        rules=any(schemas.rules_in(schema)),
    )


_BY_NAME = {served.resource.qualified: served for served in BUILT_IN}


def served_resource(kind: api_resources.Resource) -> ServedResource:
    """Return how a built-in kind is served. Raises KeyError for other kinds."""
    return _BY_NAME[kind.qualified]
