"""Names by which clients find the manager in a Kubernetes cluster, shared with its manifests.

Used by `kiln install` and `kiln manager`, which create these objects, and by `endpoints`, which
finds the manager through the API server's service proxy with nothing but a kubeconfig.
"""

from collections.abc import Mapping
from typing import Any
from urllib import parse

NAMESPACE = "kilnwork-system"
"""The namespace in which `kiln install` puts the manager by default."""

NAMESPACE_VARIABLE = "KILN_MANAGER_NAMESPACE"
"""Environment variable of clients: the namespace of a manager that is somewhere else."""

LEASE = "kilnwork-manager"
"""Name of the Lease by which one manager leads."""

SERVICE = "kilnwork"
PORT_NAME = "https"
PORT = 7443
"""One port for everything: `/v1`, `/blobs`, `/channel`, `/metrics`, health, all over TLS."""

SERVER_NAME = "manager.kilnwork.dev"
"""The name in the manager's certificate, whatever address workers connect to; they get its CA in
the channel Secret."""

ENDPOINTS_PATH = "/v1/endpoints"
"""The path at which a server says how it is reached, to clients with a valid token."""

CHANNEL_PATH = "/channel"
CHANNEL_PROTOCOL = "kilnwork-channel"
"""`Upgrade: kilnwork-channel` on `CHANNEL_PATH` (RFC 9110 §7.8): after 101 come frames."""

TOKEN_HEADER = "X-Kiln-Token"  # noqa: S105 - the name of a header
"""A bearer token for the manager: the API server's proxy keeps `Authorization` for itself."""

CLUSTER_HEADER = "X-Kiln-Cluster"
"""`NAMESPACE/NAME` of the TaskCluster whose channel token a worker shows in `TOKEN_HEADER`."""

EXECUTOR_PREFIX = "/executor/"
"""How the value of `CLUSTER_HEADER` begins for a process of an executor, whose name follows: it
shows a token with which it may `use` that."""

ATTEMPT_HEADER = "X-Kiln-Attempt"
"""`POD ID/RUN/ATTEMPT`: the Pod whose token the sidecar of an attempt shows in `TOKEN_HEADER`, and
which attempt the Pod is."""

ATTEMPT_AUDIENCE = "attempt.kilnwork.dev"
"""The audience of a sidecar's token: the manager alone, and only for its attempt."""

DRIVER_ACCOUNT = "kilnwork-driver"
"""ServiceAccount whose tokens are asked for when a kubeconfig has no token of its own."""

READER_ACCOUNT = "kilnwork-reader"
"""The same for users with read access: its tokens allow no changes."""

USER_HEADER = "X-Kiln-User"
"""The user that a client with such a token claims to be, for the manager's audit line. It is not
verified: only the id of the token is certain, by which the API server's audit log names the
requester."""

AUDIENCE = "kilnwork.dev"
"""The audience of such a token: the manager accepts it, the API server itself does not."""

TOKEN_S = 3600
"""Requested lifetime of a token. The minimum that is always granted, 10 minutes, could be too short
for `kiln logs -f`, whose rights are checked only once."""

ACTS = (
    "the kubeconfig acts as another user (`as`), which a manager in a cluster would not see: "
    "it is shown your own token. Name a kubeconfig without it"
)
"""Why a kubeconfig that impersonates is refused."""

ABSENCE_S = 60.0
"""How long the manager may be away before workers end their tasks, by default. A rollout takes
some ten seconds, a Pod that moves with its volume to another node up to a minute."""

MIN_ABSENCE_S, MAX_ABSENCE_S = 10.0, 3600.0
"""Bounds of that time. Below them, a garbage collection or a slow disk would end tasks; above them,
tasks of a lost machine that Kubernetes does not report would wait for more than an hour."""


def home(environment: Mapping[str, str]) -> str:
    """Return the namespace of a cluster's manager, to a client."""
    return environment.get(NAMESPACE_VARIABLE) or NAMESPACE


def token_request() -> dict[str, Any]:
    """Return the request for a token of one of the two accounts (authentication.k8s.io/v1
    TokenRequest)."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_S},
    }


def proxy_path(namespace: str = NAMESPACE) -> str:
    """Return the path prefix at the API server under which the manager's own paths are found."""
    quoted = parse.quote(namespace, safe="")
    return f"/api/v1/namespaces/{quoted}/services/https:{SERVICE}:{PORT_NAME}/proxy"


def obstacle(status: int, said: str, *, home: str) -> str:
    """Return why the manager in namespace `home` cannot be reached, and the remedy.

    `status` and `said`: code and text of the response that came instead of the manager's own; 0 for
    the manager's own 403 and 404, whose text is enough.
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
