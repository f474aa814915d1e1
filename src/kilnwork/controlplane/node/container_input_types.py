"""Inputs of a container from outside its Pod: API objects, tokens, and facts of the node.

Used by `container_plan`, `volume_sources` and `downward_fields`, which do no I/O, and by
`container_preparation`, which fetches the objects and tokens. `local_node` finds the facts.
"""

import types
from collections.abc import Mapping
from typing import Literal, NamedTuple

from kilnwork.api import meta

Kind = Literal["Secret", "ConfigMap"]


class ObjectWant(NamedTuple):
    """An object that a container needs before it can start."""

    kind: Kind
    name: str
    optional: bool


class TokenWant(NamedTuple):
    """A token of the Pod's service account; an empty audience means the API server."""

    audience: str
    seconds: int


Found = Mapping[tuple[Kind, str], meta.JsonObject | None]
"""(kind, name) → the object of the API server, or None if it does not exist."""

Tokens = Mapping[TokenWant, str]
"""The token that was issued for each want."""


class NodeFacts(NamedTuple):
    """Facts of a node that are the same for all containers."""

    node: str
    address: str
    workdir: str
    """Working directory of containers that do not name one."""
    env: Mapping[str, str]
    """Base of every environment (PATH, HOME)."""
    service_env: Mapping[str, str]
    """Further variables of Pods with a service account."""
    capacity: Mapping[str, str] = types.MappingProxyType({})
    """Resource quantities of the node, which count as the limits of a container without limits."""
    mounts_accounts: bool = True
    """Give a Pod the files of its service account if it has no volume for them. This is needed with
    API servers without the ServiceAccount admission plugin (the embedded one)."""
    uid: int = 0
    """User of all processes."""
    gid: int = 0
    """Group of all processes."""
