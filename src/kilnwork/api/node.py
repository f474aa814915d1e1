"""The fields of a Kubernetes Node that kilnwork reads: labels, taints, capacity, conditions.

Used by controllers that choose nodes.
"""

import msgspec

from kilnwork.api import meta


class Taint(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A taint of a node (core/v1 Taint)."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The spec of a node (core/v1 NodeSpec)."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 NodeCondition without its times, so that a heartbeat changes nothing here."""

    type: str
    status: str


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The status of a node (core/v1 NodeStatus)."""

    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node (core/v1 Node)."""

    metadata: meta.ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the kubelet reports that the node is ready."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
