"""The CustomResourceDefinition of DataPond: its rules and columns.

Used by `crd`. The CEL rules are for the real API server.
"""

from kilnwork.api import crd_parts, data_pond

WATERMARK_RULE = "lowWatermark must not be above highWatermark"

DATA_POND = crd_parts.KindDefinition(
    description=data_pond.DataPond.__doc__ or "",
    spec=data_pond.DataPondSpec,
    status=data_pond.DataPondStatus,
    columns=(
        crd_parts.column(
            "Ready", ".status.nodes.ready", type_="integer", about="Number of agents that report."
        ),
        crd_parts.column(
            "Nodes", ".status.nodes.total", type_="integer", about="Number of selected nodes."
        ),
        crd_parts.column(
            "Used",
            ".status.bytes.used",
            type_="integer",
            about="Number of bytes used on all nodes.",
        ),
        crd_parts.column(
            "Snapshots",
            ".status.snapshotsTotal",
            type_="integer",
            about="Number of snapshots in the pond.",
        ),
        crd_parts.column(
            "Reason",
            '.status.conditions[?(@.type=="Ready")].reason',
            wide=True,
            about="Reason for the condition Ready.",
        ),
        crd_parts.AGE,
    ),
    additions={
        "spec": crd_parts.rules(
            crd_parts.rule("self.lowWatermark <= self.highWatermark", WATERMARK_RULE)
        ),
        "spec.sources": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "status.conditions": crd_parts.CONDITIONS,
    },
)
