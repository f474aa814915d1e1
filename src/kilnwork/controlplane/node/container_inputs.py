"""What a container needs from elsewhere before it can start: objects, tokens, facts of the node.

Used by `container_plan`, `volume_sources` and `downward_fields`, which are pure, and by the
reconciler, which fetches.
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
    """A token of the Pod's service account; an empty audience is the API server's own."""

    audience: str
    seconds: int


Found = Mapping[tuple[Kind, str], meta.JsonObject | None]
"""What the API server had under each wanted (kind, name); None: there is no such object."""

Tokens = Mapping[TokenWant, str]
"""The tokens that were asked for."""


class NodeFacts(NamedTuple):
    """What is the same for all containers of this node.

    `env` is the base of every environment (PATH, HOME), `service_env` what Pods with a service
    account get besides. `workdir` is where containers run that name no directory. `capacity`: of
    the node, as resource quantities; what a container without limits has. `mounts_accounts`: give a
    Pod the files of its service account although no volume of it says so, as needed by API servers
    without the ServiceAccount admission (the embedded one). `uid`, `gid`: of all processes.
    """

    node: str
    address: str
    workdir: str
    env: Mapping[str, str]
    service_env: Mapping[str, str]
    capacity: Mapping[str, str] = types.MappingProxyType({})
    mounts_accounts: bool = True
    uid: int = 0
    gid: int = 0
