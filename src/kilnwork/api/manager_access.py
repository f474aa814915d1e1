"""Names, paths and headers by which clients find and address the manager in a Kubernetes cluster.

Used by `kiln install` and `kiln manager`, which create these objects, by `endpoints`, which finds
the manager through the API server's service proxy with only a kubeconfig, and by the server,
workers, sidecars and agents.
"""

from collections.abc import Mapping
from typing import Any
from urllib import parse

NAMESPACE = "kilnwork-system"
"""Default namespace of the manager in `kiln install`."""

NAMESPACE_VARIABLE = "KILN_MANAGER_NAMESPACE"
"""Environment variable of clients: the namespace of the manager, if it is not the default one."""

LEASE = "kilnwork-manager"
"""Name of the Lease for the election of the leading manager."""

SERVICE = "kilnwork"
PORT_NAME = "https"
PORT = 7443
"""The only port, for `/v1`, `/blobs`, `/channel`, `/metrics` and health, all over TLS."""

SERVER_NAME = "manager.kilnwork.dev"
"""The name in the manager's certificate, whatever address workers connect to; they get its CA in
the channel Secret."""

ENDPOINTS_PATH = "/v1/endpoints"
"""Path at which a server describes its endpoints to clients with a valid token."""

CHANNEL_PATH = "/channel"
CHANNEL_PROTOCOL = "kilnwork-channel"
"""Protocol in the `Upgrade` header of `CHANNEL_PATH` (RFC 9110 §7.8): after status 101 the peers
exchange frames."""

TOKEN_HEADER = "X-Kiln-Token"  # noqa: S105 - the name of a header
"""Header with a bearer token for the manager: the API server's proxy does not forward
`Authorization`."""

CLUSTER_HEADER = "X-Kiln-Cluster"
"""Header with `NAMESPACE/NAME` of the TaskCluster whose channel token a worker sends in
`TOKEN_HEADER`."""

EXECUTOR_PREFIX = "/executor/"
"""Prefix of `CLUSTER_HEADER` for an executor's process, followed by the name of the executor;
its token must allow `use` of that executor."""

ATTEMPT_HEADER = "X-Kiln-Attempt"
"""Header with `POD ID/RUN/ATTEMPT`: the Pod whose token a sidecar sends in `TOKEN_HEADER`, and
the attempt that the Pod runs."""

ATTEMPT_AUDIENCE = "attempt.kilnwork.dev"
"""The audience of a sidecar's token, which only the manager accepts, and only for its attempt."""

DRIVER_ACCOUNT = "kilnwork-driver"
"""ServiceAccount whose tokens are requested when a kubeconfig contains no token."""

READER_ACCOUNT = "kilnwork-reader"
"""ServiceAccount for users with read access: its tokens allow no changes."""

USER_HEADER = "X-Kiln-User"
"""Header with the user that a client with a token of one of these accounts claims to be, for the
manager's audit line. The user is not verified: only the id of the token is certain, by which the
API server's audit log names the requester."""

AUDIENCE = "kilnwork.dev"
"""The audience of the tokens of these accounts: the manager accepts such tokens, the API server
does not."""

TOKEN_S = 3600
"""Requested lifetime of a token, in seconds. The guaranteed minimum, 10 minutes, could be too
short for `kiln logs -f`, whose rights are checked only once."""

IMPERSONATION_REFUSED = (
    "the kubeconfig acts as another user (`as`), which a manager in a cluster would not see: "
    "it is shown your own token. Name a kubeconfig without it"
)
"""Why a kubeconfig with impersonation is refused."""

ABSENCE_S = 60.0
"""Default time in seconds for which the manager may be unreachable before workers end their
tasks. A rollout takes about ten seconds, moving a Pod with its volume to another node up to a
minute."""

MIN_ABSENCE_S, MAX_ABSENCE_S = 10.0, 3600.0
"""Bounds of the time for which the manager may be unreachable, in seconds. Below the minimum, a
garbage collection or a slow disk could end tasks; above the maximum, tasks of a lost machine that
Kubernetes does not report would wait for more than an hour."""


def manager_namespace(environment: Mapping[str, str]) -> str:
    """Return the namespace of the manager of a Kubernetes cluster, for a client."""
    return environment.get(NAMESPACE_VARIABLE) or NAMESPACE


def token_request() -> dict[str, Any]:
    """Return the request for a token of DRIVER_ACCOUNT or READER_ACCOUNT (authentication.k8s.io/v1
    TokenRequest)."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_S},
    }


def proxy_path(namespace: str = NAMESPACE) -> str:
    """Return the path prefix at the API server below which the manager's own paths are."""
    quoted = parse.quote(namespace, safe="")
    return f"/api/v1/namespaces/{quoted}/services/https:{SERVICE}:{PORT_NAME}/proxy"


def explain_unreachable(status: int, said: str, *, home: str) -> str:
    """Return why the manager in namespace `home` cannot be reached, and the remedy.

    `status` and `said`: status code and text of the response that was received instead of the
    manager's. For the manager's own 403 and 404 `status` is 0, since their text suffices.
    """
    where = f"namespace {home} ({NAMESPACE_VARIABLE} names another)"
    if status == 404:
        return f"no manager is installed in {where}: `kiln install | kubectl apply -f -` does that"
    if status in (502, 503, 504):
        return (
            f"the manager in {where} is not ready: {said}. `kubectl -n {home} get pods` and "
            f"`kubectl -n {home} logs statefulset/kilnwork-manager` say more"
        )
    if status == 403:
        return (
            f"you may not reach the manager in {where}: {said}. It takes `get`, `create` and "
            f"`update` on services/proxy of its Service"
        )
    if status == 401:
        return f"the manager in {where} does not accept the token: {said}"
    return f"the manager in {where} cannot be used: {said}"
