"""How the manager is found in a Kubernetes cluster: names that its manifests and clients share.

Used by `kiln install` and `kiln manager`, which make them so, and by `endpoints`, which finds the
manager through the API server's service proxy with nothing but a kubeconfig.
"""

from collections.abc import Mapping
from typing import Any
from urllib import parse

NAMESPACE = "kilnwork-system"
"""Where `kiln install` puts the manager unless told otherwise."""

NAMESPACE_VARIABLE = "KILN_MANAGER_NAMESPACE"
"""Environment variable of clients: the namespace of a manager that is somewhere else."""

LEASE = "kilnwork-manager"
"""Name of the Lease by which one manager leads."""

SERVICE = "kilnwork"
PORT_NAME = "https"
PORT = 7443
"""One port for everything: `/v1`, `/blobs`, `/channel`, `/metrics`, health, all over TLS."""

SERVER_NAME = "manager.kilnwork.dev"
"""What workers expect in the manager's certificate, wherever they connect to: its CA is its own,
and comes to them in the channel Secret."""

ENDPOINTS_PATH = "/v1/endpoints"
"""Where a server says how it is reached, to whoever has a token that it knows."""

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
"""Whom the token of such a sidecar is for: the manager alone, and only for its attempt."""

DRIVER_ACCOUNT = "kilnwork-driver"
"""ServiceAccount whose tokens are asked for when a kubeconfig has no token of its own."""

READER_ACCOUNT = "kilnwork-reader"
"""The same for who may only look: its tokens change nothing."""

USER_HEADER = "X-Kiln-User"
"""Who says to be behind the token of such an account, for the manager's audit line. Nobody checks
it: what is certain is the id of the token, by which the API server's audit log names who asked for
it."""

AUDIENCE = "kilnwork.dev"
"""Whom such a token is for: the manager takes it, the API server itself does not."""

TOKEN_S = 3600
"""How long it is asked to hold. The least that is always granted, 10 minutes, could be too short
for `kiln logs -f`, whose rights are looked at only once anyway."""

ACTS = (
    "the kubeconfig acts as somebody else (`as`), which a manager in a cluster would not see: "
    "it is shown your own token. Name a kubeconfig without it"
)
"""Why a kubeconfig that impersonates is refused."""

ABSENCE_S = 60.0
"""How long the manager may be away before workers end their tasks, by default. A rollout takes
some ten seconds, a Pod that moves with its volume to another node up to a minute."""

MIN_ABSENCE_S, MAX_ABSENCE_S = 10.0, 3600.0
"""Below it, a garbage collection or a slow disk would end tasks; above it, tasks of a machine that
is gone, and of which Kubernetes cannot say so, would wait for more than an hour."""


def home(environment: Mapping[str, str]) -> str:
    """Return the namespace of a cluster's manager, to a client."""
    return environment.get(NAMESPACE_VARIABLE) or NAMESPACE


def token_request() -> dict[str, Any]:
    """Asks for a token of one of the two accounts (authentication.k8s.io/v1 TokenRequest)."""
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
    """Return what stands in the way to the manager in namespace `home`.

    `status` is what was answered there instead of the manager's own page, `said` with which words;
    of the manager's own 403 and 404 the words tell all: give 0 for them.
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
