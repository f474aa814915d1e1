"""What the API server is made of: filled in by `cluster`, used by `app` and `resources`."""

import msgspec

from kilnwork.controlplane.apiserver import (
    authn,
    authz,
    crud,
    deletion,
    namespaces,
    podexec,
    podlogs,
    tokens,
    watching,
)
from kilnwork.kit import ids


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server is made of; all of it is running when requests come."""

    writer: crud.Writer
    deleter: deletion.Deleter
    hub: watching.Hub
    keeper: namespaces.Keeper
    authenticator: authn.Authenticator
    authorizer: authz.Authorizer
    minter: tokens.Tokens
    logs: podlogs.PodLogs
    streams: podexec.PodStreams
    entropy: ids.Entropy
    address: str = ""
