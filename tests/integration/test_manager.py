"""The manager by itself, against an API server: leadership, rights, and tasks that run."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.api import manager_access as names
from kilnwork.channel import worker_side_lease
from kilnwork.cli.wiring import embedded, in_cluster_server, journal_identity_check
from kilnwork.controlplane import cluster
from kilnwork.dispatch.journal.sqlite import connections
from kilnwork.kit import clock, errors
from kilnwork.kube import client
from kilnwork.server import ports, reviews, state_explanations
from support import embedded_server, waiting

NS = "default"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    async with embedded_server.control_plane(tmp_path / "plane") as made:
        yield made


@pytest.fixture
async def kube(plane: cluster.ControlPlane) -> AsyncIterator[client.Client]:
    async with client.Client(plane.admin_config()) as made:
        yield made


def server(
    plane: cluster.ControlPlane,
    directory: Path,
    *,
    on_failure: Callable[[str], None] = print,
    **more: Any,
) -> in_cluster_server.InClusterServer:
    """Return a manager, not started, for workers on this machine."""
    chosen: dict[str, Any] = {
        "data_dir": directory,
        "kube": plane.admin_config(),
        "namespace": NS,
        "only_in": (),
        "host": "127.0.0.1",
        "port": 0,
        "advertise": "unix",
        "worker_image": "kilnwork/worker:test",
        "worker_command": embedded.WORKER_COMMAND,
        "machine": "here",
    }
    settings = in_cluster_server.InClusterSettings(**(chosen | more))
    return in_cluster_server.InClusterServer(settings, on_failure=on_failure)


def ignore_event(_: str) -> None:
    """Kube events are dropped."""


@pytest.fixture
async def manager(
    plane: cluster.ControlPlane, tmp_path: Path
) -> AsyncIterator[in_cluster_server.InClusterServer]:
    made = server(plane, tmp_path / "manager")
    try:
        await made.start(say=ignore_event)
        yield made
    finally:
        await made.stop(say=ignore_event)


async def ask(
    made: in_cluster_server.InClusterServer, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, Any]:
    """Return status and document from the manager's own port, whose certificate only workers
    check.
    """
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.request(
            method, f"https://127.0.0.1:{made.port}{path}", headers=sent, ssl=False
        ) as response,
    ):
        kind = response.content_type
        return response.status, await (response.json() if "json" in kind else response.text())


async def create_account(kube: client.Client, name: str, *roles: str) -> str:
    """Return the token of a new account with these ClusterRoles in the namespace."""
    metadata = {"name": name, "namespace": NS}
    await kube.create(api_resources.SERVICE_ACCOUNTS, {"metadata": metadata})
    for role in roles:
        binding = {
            "metadata": {"name": f"{name}-{role}", "namespace": NS},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NS}],
        }
        binding["roleRef"]["name"] = role  # type: ignore[index]
        await kube.create(api_resources.ROLE_BINDINGS, binding)
    response = await kube.create_sub(
        api_resources.SERVICE_ACCOUNTS, name, "token", {"kind": "TokenRequest", "spec": {}}, NS
    )
    return str(response["status"]["token"])


async def test_task_runs_and_is_visible_to_its_users(
    plane: cluster.ControlPlane, kube: client.Client, manager: in_cluster_server.InClusterServer
) -> None:
    await plane.start_node()
    spec = {"metadata": {"name": "default", "namespace": NS}, "spec": {"replicas": 1}}
    await kube.create(kinds.TASK_CLUSTERS, spec)
    task = {"metadata": {"name": "hello", "namespace": NS}, "spec": {"command": ["echo", "hello"]}}
    await kube.create(kinds.TASKS, task)

    async def done() -> bool:
        found = await kube.get(kinds.TASKS, "hello", NS)
        return bool(found.get("status", {}).get("state") == "Success")

    await waiting.wait_until_async(done, what="the task succeeds")
    token = await create_account(kube, "reader", "view")
    path = f"/v1/namespaces/{NS}/tasks/hello/logs"
    assert await ask(manager, path, X_Kiln_Token=token) == (200, "hello\n")
    assert await ask(manager, path, Authorization=f"Bearer {token}") == (200, "hello\n")


async def test_manager_of_one_namespace_ignores_others(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    await kube.create(api_resources.NAMESPACES, {"metadata": {"name": "other"}})
    for space in (NS, "other"):
        task = {"metadata": {"name": "waits", "namespace": space}, "spec": {"command": ["true"]}}
        await kube.create(kinds.TASKS, task)
    made = server(plane, tmp_path / "manager", only_in=(NS,))
    try:
        await made.start(say=ignore_event)

        async def reported(space: str) -> bool:
            found = await kube.get(kinds.TASKS, "waits", space)
            return "status" in found

        await waiting.wait_until_async(lambda: reported(NS), what="it says what the task waits for")
        assert not await reported("other")
        token = (plane.data_dir / "token").read_text().strip()
        status, document = await ask(made, "/v1/namespaces/other/clusters", X_Kiln_Token=token)
        assert status == 404
        assert document["message"].endswith("those that you may use: default")
    finally:
        await made.stop(say=ignore_event)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/endpoints"),
        ("GET", "/metrics"),
        ("GET", "/jobs"),
        ("GET", "/jobs?allNamespaces=true"),
        ("POST", "/jobs/x/pause"),
        ("GET", "/files"),
        ("GET", f"/blobs/{NS}/sha256:{'0' * 64}"),
        ("GET", f"/objects/{NS}/x"),
    ],
)
async def test_unauthorized_names_the_expected_header(
    manager: in_cluster_server.InClusterServer, method: str, path: str
) -> None:
    async with (
        aiohttp.ClientSession(f"https://127.0.0.1:{manager.port}") as http,
        http.request(method, path, ssl=False) as response,
    ):
        assert (response.status, response.headers.get("www-authenticate")) == (401, "Bearer")


async def test_requests_are_authenticated_and_limited_by_rbac(
    plane: cluster.ControlPlane, kube: client.Client, manager: in_cluster_server.InClusterServer
) -> None:
    path = f"/v1/namespaces/{NS}/tasks"
    assert (await ask(manager, path))[0] == 401
    assert (await ask(manager, path, X_Kiln_Token="wrong"))[0] == 401
    stranger = await create_account(kube, "guest")
    status, refused = await ask(manager, path, X_Kiln_Token=stranger)
    assert status == 403
    assert refused["message"] == (
        'tasks.kilnwork.dev is forbidden: User "system:serviceaccount:default:guest" cannot list '
        'resource "tasks" in API group "kilnwork.dev" in the namespace "default"'
    )
    reader = await create_account(kube, "reader", "view")
    assert (await ask(manager, path, X_Kiln_Token=reader))[0] == 200
    # the manager's own header wins: the proxy of an API server may add anything else
    both = {"X_Kiln_Token": stranger, "Authorization": f"Bearer {reader}"}
    assert (await ask(manager, path, **both))[0] == 403
    assert (await ask(manager, "/metrics"))[0] == 401
    status, refused = await ask(manager, "/metrics", X_Kiln_Token=reader)
    assert status == 403
    assert refused["message"].endswith(
        'cannot list resource "tasks" in API group "kilnwork.dev" at the cluster scope'
    )
    admin = (plane.data_dir / "token").read_text().strip()
    assert (await ask(manager, "/metrics", X_Kiln_Token=admin))[0] == 200
    assert (await ask(manager, "/readyz"))[0] == 200
    assert (await ask(manager, "/elsewhere", X_Kiln_Token=reader))[0] == 404


async def test_second_manager_waits_and_takes_over_by_force(
    plane: cluster.ControlPlane, manager: in_cluster_server.InClusterServer, tmp_path: Path
) -> None:
    second = server(plane, tmp_path / "second", adopt=True)
    starting = asyncio.ensure_future(second.start(say=ignore_event))
    try:
        await waiting.wait_until_async(lambda: second.port, what="it listens")

        async def waits() -> bool:
            status, text = await ask(second, "/readyz")
            return status == 503 and "holds the Lease" in text

        await waiting.wait_until_async(waits, what="it says who leads")
        assert (await ask(second, f"/v1/namespaces/{NS}/tasks", X_Kiln_Token="x"))[0] == 503
        await manager.stop(say=ignore_event)
        await asyncio.wait_for(starting, 20)
        assert (await ask(second, "/readyz"))[0] == 200
    finally:
        starting.cancel()
        await second.stop(say=ignore_event)


async def test_deposed_manager_reports_it_and_is_not_ready(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    """`kiln manager` then ends."""
    failures: list[str] = []
    made = server(plane, tmp_path / "manager", on_failure=failures.append)
    try:
        await made.start(say=ignore_event)
        change = {"spec": {"holderIdentity": "another"}}
        await kube.merge_patch(api_resources.LEASES, in_cluster_server.LEASE, change, NS)
        await waiting.wait_until_async(lambda: failures, what="it says so")
        assert "another" in failures[0]
        assert (await ask(made, "/readyz"))[0] == 503
    finally:
        await made.stop(say=ignore_event)
    held = await kube.get(api_resources.LEASES, in_cluster_server.LEASE, NS)
    assert held["spec"]["holderIdentity"] == "another"


async def test_manager_with_another_journal_does_not_lead(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    first = server(plane, tmp_path / "manager")
    await first.start(say=ignore_event)
    await first.stop(say=ignore_event)
    second = server(plane, tmp_path / "second")
    starting = asyncio.ensure_future(second.start(say=ignore_event))
    try:
        await waiting.wait_until_async(lambda: second.port, what="it listens")

        async def refuses() -> bool:
            status, text = await ask(second, "/readyz")
            return status == 503 and "a new, empty one" in text

        await waiting.wait_until_async(refuses, what="it says why it does not lead")

        async def reported() -> bool:
            found = await kube.list(api_resources.EVENTS, NS, type=dict[str, Any])
            return any(one["reason"] == "AnotherJournal" for one in found.items)

        await waiting.wait_until_async(reported, what="a kube event says so")
        await kube.delete(api_resources.LEASES, in_cluster_server.LEASE, NS)
        again = server(plane, tmp_path / "manager")
        await again.start(say=ignore_event)
        await again.stop(say=ignore_event)
        assert not starting.done()
        held = await kube.get(api_resources.LEASES, in_cluster_server.LEASE, NS)
        annotations = {journal_identity_check.ANNOTATION: (await identity(tmp_path / "second"))}
        changed = {**held, "metadata": {**held["metadata"], "annotations": annotations}}
        await kube.replace(api_resources.LEASES, changed)
        await asyncio.wait_for(starting, 30)
        assert (await ask(second, "/readyz"))[0] == 200
    finally:
        starting.cancel()
        await second.stop(say=ignore_event)


async def identity(data: Path) -> str:
    """Return the id of the journal there, as its leader reports it."""
    with contextlib.closing(connections.reading(data / "journal.db")) as connection:
        return str(connection.execute("SELECT identity FROM leadership").get)


async def test_restarted_manager_gets_its_directory_back_at_once(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    """Also if it could not release its Lease: the Lease names it, so it acquires it again."""
    first = server(plane, tmp_path / "manager")
    await first.start(say=ignore_event)
    lease = await kube.get(api_resources.LEASES, in_cluster_server.LEASE, NS)
    await first.stop(say=ignore_event)
    now = await kube.get(api_resources.LEASES, in_cluster_server.LEASE, NS)
    await kube.replace(api_resources.LEASES, {**now, "spec": lease["spec"]})
    second = server(plane, tmp_path / "manager")
    async with asyncio.timeout(30):
        await second.start(say=ignore_event)
    await second.stop(say=ignore_event)


async def test_manager_reports_tasks_restarted_after_a_long_absence(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    """It was away for longer than the least granted absence plus the reserve."""
    await plane.start_node()
    spec = {"metadata": {"name": "default", "namespace": NS}, "spec": {"replicas": 1}}
    await kube.create(kinds.TASK_CLUSTERS, spec)
    script = 'test "$KILN_ATTEMPT" -gt 1 || touch "$0"; exec sleep 600'
    task = {
        "metadata": {"name": "long", "namespace": NS},
        "spec": {
            "command": ["sh", "-c", script, str(tmp_path / "begun")],
            "retry": {"maxLosses": 0},
        },
    }
    await kube.create(kinds.TASKS, task)
    first = server(plane, tmp_path / "manager", absence_s=0.3)
    await first.start(say=ignore_event)
    await waiting.wait_until_async((tmp_path / "begun").exists, what="it runs")
    await wait_until_running(kube, attempt=1)
    await first.stop(say=ignore_event)
    await asyncio.sleep(worker_side_lease.length_for(0.3, renew_s=0.1))
    second = server(plane, tmp_path / "manager", absence_s=0.3)
    try:
        await second.start(say=ignore_event)
        status = await wait_until_running(kube, attempt=2)
        assert status["losses"] == 1
        assert "DispatcherAway" in status["message"]
        facts = state_explanations.WhyFacts.of_object(
            {"metadata": {"name": "long"}, "status": status}
        )
        message = state_explanations.sentence(facts, now=time.time())
        assert "attempt 2; an attempt before was lost (DispatcherAway: " in message

        async def reported() -> bool:
            found = await kube.list(api_resources.EVENTS, NS, type=dict[str, Any])
            return any(one["reason"] == "AttemptLost" for one in found.items)

        await waiting.wait_until_async(reported, what="a kube event tells of it")
    finally:
        await second.stop(say=ignore_event)


async def wait_until_running(kube: client.Client, *, attempt: int) -> dict[str, Any]:
    """Return the status of the Task, once that attempt runs."""

    async def runs() -> dict[str, Any] | None:
        status = (await kube.get(kinds.TASKS, "long", NS)).get("status", {})
        right = (status.get("state"), status.get("attempts")) == ("Running", attempt)
        return dict(status) if right else None

    found = await waiting.wait_until_async(runs, what=f"attempt {attempt} runs", timeout_s=60)
    return dict(found or {})


async def test_epochs_continue_when_the_lease_is_deleted(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> None:
    admin = (plane.data_dir / "token").read_text().strip()
    for term in (1, 2, 3):
        made = server(plane, tmp_path / "manager")
        try:
            await made.start(say=ignore_event)
            assert made.term == term
            _, text = await ask(made, "/metrics", X_Kiln_Token=admin)
            assert f"kilnwork_term {term}" in text
        finally:
            await made.stop(say=ignore_event)
        await kube.delete(api_resources.LEASES, in_cluster_server.LEASE, NS)


async def test_directory_or_port_in_use_is_refused(
    plane: cluster.ControlPlane, manager: in_cluster_server.InClusterServer, tmp_path: Path
) -> None:
    again = server(plane, tmp_path / "manager")
    with pytest.raises(errors.ConfigurationError, match="is in use by"):
        await again.start(say=ignore_event)
    await again.stop(say=ignore_event)
    other = server(plane, tmp_path / "other", port=manager.port)
    with pytest.raises(errors.ConfigurationError, match="choose another with --listen"):
        await other.start(say=ignore_event)
    await other.stop(say=ignore_event)


async def test_unreachable_api_server_is_a_503(
    plane: cluster.ControlPlane, kube: client.Client, manager: in_cluster_server.InClusterServer
) -> None:
    token = await create_account(kube, "reader", "view")
    path = f"/v1/namespaces/{NS}/tasks"
    assert (await ask(manager, path, X_Kiln_Token=token))[0] == 200
    await plane.stop()
    assert (await ask(manager, path, X_Kiln_Token=token))[0] == 200, "remembered for a moment"
    status, document = await ask(manager, path, X_Kiln_Token="another")
    assert status == 503
    assert "the API server does not say" in document["message"]


async def test_token_reviews_are_cached_for_seconds(kube: client.Client) -> None:
    time = clock.ManualClock()
    people = reviews.Reviews(kube, time=time)
    token = await create_account(kube, "reader", "view")
    user = await people.token_user(token)
    assert user is not None
    assert user.name == "system:serviceaccount:default:reader"
    may = ports.Question(verb="list", namespace=NS)
    assert await people.refusal(user, may) is None
    await kube.delete(api_resources.ROLE_BINDINGS, "reader-view", NS)
    assert await people.refusal(user, may) is None
    time.advance(reviews.REMEMBER_S)
    assert "cannot list" in str(await people.refusal(user, may))
    assert await people.token_user("wrong") is None


async def test_manager_token_is_refused_by_the_api_server(
    plane: cluster.ControlPlane, kube: client.Client
) -> None:
    await kube.create(
        api_resources.SERVICE_ACCOUNTS, {"metadata": {"name": "driver", "namespace": NS}}
    )
    asked = {"kind": "TokenRequest", "spec": {"audiences": [names.AUDIENCE]}}
    made = await kube.create_sub(api_resources.SERVICE_ACCOUNTS, "driver", "token", asked, NS)
    token = str(made["status"]["token"])
    user = await reviews.Reviews(kube, time=clock.SystemClock()).token_user(token)
    assert user is not None
    assert user.name == "system:serviceaccount:default:driver"
    async with embedded_server.http(plane, token=token) as elsewhere:
        assert (await elsewhere.get(f"/api/v1/namespaces/{NS}")).status == 401


def test_port_equals_that_of_the_service() -> None:
    assert names.proxy_path("a b") == "/api/v1/namespaces/a%20b/services/https:kilnwork:https/proxy"
