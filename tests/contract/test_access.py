"""Access to the manager: the embedded API server, called directly and over HTTP, decides the
same.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources, manager_access
from kilnwork.cli.wiring import port_adapters
from kilnwork.controlplane import cluster
from kilnwork.kit import asgi, clock
from kilnwork.kube import client
from kilnwork.server import ports, reviews
from support import embedded_server

NS = "default"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    async with embedded_server.control_plane(tmp_path) as made:
        yield made


@pytest.fixture
async def kube(plane: cluster.ControlPlane) -> AsyncIterator[client.Client]:
    async with client.Client(plane.admin_config()) as made:
        yield made


@pytest.fixture(params=["directly", "over HTTP"])
def access(
    request: pytest.FixtureRequest, plane: cluster.ControlPlane, kube: client.Client
) -> ports.Access:
    if request.param == "directly":
        return port_adapters.EmbeddedAccess(plane)
    return reviews.Reviews(kube, time=clock.SystemClock())


async def reader_token(kube: client.Client, *audiences: str) -> str:
    """Return a token of a service account that may read the namespace."""
    await kube.create(api_resources.SERVICE_ACCOUNTS, {"metadata": {"name": "r", "namespace": NS}})
    binding = {
        "metadata": {"name": "r", "namespace": NS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "r", "namespace": NS}],
    }
    await kube.create(api_resources.ROLE_BINDINGS, binding)
    spec = {"audiences": audiences} if audiences else {}
    body = {"kind": "TokenRequest", "spec": spec}
    made = await kube.create_sub(api_resources.SERVICE_ACCOUNTS, "r", "token", body, NS)
    return str(made["status"]["token"])


@pytest.mark.parametrize("audiences", [(), (manager_access.AUDIENCE,)])
async def test_token_of_service_account_authenticates_that_account(
    access: ports.Access, kube: client.Client, audiences: tuple[str, ...]
) -> None:
    user = await access.token_user(await reader_token(kube, *audiences))
    assert user is not None
    assert user.name == f"system:serviceaccount:{NS}:r"


async def test_unknown_token_or_audience_authenticates_no_user(
    access: ports.Access, kube: client.Client
) -> None:
    assert await access.token_user("wrong") is None
    assert await access.token_user(await reader_token(kube, "another-audience")) is None


async def test_attempt_token_names_its_pod_and_has_no_other_audience(
    access: ports.Access, kube: client.Client
) -> None:
    await kube.create(api_resources.SERVICE_ACCOUNTS, {"metadata": {"name": "s", "namespace": NS}})
    container = {"name": "c", "image": "i"}
    spec = {"containers": [container], "serviceAccountName": "s"}
    pod = {"metadata": {"name": "p", "namespace": NS}, "spec": spec}
    made = await kube.create(api_resources.PODS, pod)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
    spec_of_token = {"audiences": [manager_access.ATTEMPT_AUDIENCE], "boundObjectRef": bound}
    body = {"kind": "TokenRequest", "spec": spec_of_token}
    response = await kube.create_sub(api_resources.SERVICE_ACCOUNTS, "s", "token", body, NS)
    token = str(response["status"]["token"])
    user = await access.token_user(token, audience=manager_access.ATTEMPT_AUDIENCE)
    assert user is not None
    facts = dict(user.extra)
    assert tuple(facts[port_adapters.POD_NAME]) == ("p",)
    assert tuple(facts[port_adapters.POD_UID]) == (made["metadata"]["uid"],)
    assert await access.token_user(token) is None
    other = await access.token_user(
        await reader_token(kube), audience=manager_access.ATTEMPT_AUDIENCE
    )
    assert other is None


async def test_request_is_authenticated_by_its_bearer_token(
    access: ports.Access, plane: cluster.ControlPlane
) -> None:
    token = (plane.data_dir / "token").read_text().strip()

    async def receive() -> asgi.Message:
        raise AssertionError("there is no body")

    async def name(*headers: tuple[bytes, bytes]) -> str | None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": list(headers)}
        user = await access.authenticate(asgi.Request(scope, receive))
        return None if user is None else user.name

    assert await name((b"authorization", f"Bearer {token}".encode())) == "kubernetes-admin"
    assert await name((b"authorization", b"Bearer wrong")) is None
    assert await name() is None


async def test_refusal_follows_rbac_and_reads_as_that_of_kubernetes(
    access: ports.Access, kube: client.Client
) -> None:
    user = await access.token_user(await reader_token(kube))
    assert await access.refusal(user, ports.Question(verb="list", namespace=NS)) is None
    question = ports.Question(verb="get", namespace="other", name="t", subresource="log")
    assert await access.refusal(user, question) == (
        f'tasks.kilnwork.dev "t" is forbidden: User "system:serviceaccount:{NS}:r" cannot get '
        'resource "tasks/log" in API group "kilnwork.dev" in the namespace "other"'
    )
