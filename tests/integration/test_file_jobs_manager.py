"""File jobs on a manager by itself: workers without a shared directory, and rights of users."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.cli.installation import rights
from kilnwork.cli.wiring import embedded, in_cluster_server
from kilnwork.controlplane import cluster
from kilnwork.kube import client
from support import embedded_server, free_ports, pages

NS = "default"
SAMPLE = pages.ROOT / "examples" / "30-upload" / "sample_small_work.json"
EXPECTED = SAMPLE.with_name("sample_small_work.results.json").read_bytes()


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    async with embedded_server.control_plane(tmp_path / "plane") as made:
        yield made


@pytest.fixture
async def kube(plane: cluster.ControlPlane) -> AsyncIterator[client.Client]:
    async with client.Client(plane.admin_config()) as made:
        yield made


def ignore_event(_: str) -> None:
    """Kube events are dropped."""


@pytest.fixture
async def manager(
    plane: cluster.ControlPlane, kube: client.Client, tmp_path: Path
) -> AsyncIterator[in_cluster_server.InClusterServer]:
    """Run a manager whose workers connect over TLS."""
    port = free_ports.free()
    settings = in_cluster_server.InClusterSettings(
        data_dir=tmp_path / "manager",
        kube=plane.admin_config(),
        namespace=NS,
        only_in=(),
        host="127.0.0.1",
        port=port,
        advertise=f"127.0.0.1:{port}",
        worker_image="kilnwork/worker:test",
        worker_command=embedded.WORKER_COMMAND,
        machine="here",
    )
    made = in_cluster_server.InClusterServer(settings, on_failure=print)
    try:
        await made.start(say=ignore_event)
        spec = {"metadata": {"name": "default", "namespace": NS}, "spec": {"replicas": 1}}
        await kube.create(kinds.TASK_CLUSTERS, spec)
        yield made
    finally:
        await made.stop(say=ignore_event)


class Caller:
    """A client with a token, or without one."""

    def __init__(self, manager: in_cluster_server.InClusterServer, token: str = "") -> None:
        self._url = f"https://127.0.0.1:{manager.port}"
        self._headers = {"X-Kiln-Token": token} if token else {}

    async def ask(
        self, method: str, path: str, *, data: bytes | None = None
    ) -> tuple[int, bytes, Any]:
        async with (
            aiohttp.ClientSession(headers=self._headers) as http,
            http.request(method, self._url + path, data=data, ssl=False) as response,
        ):
            body = await response.read()
            plain = response.content_type in ("application/json", "application/problem+json")
            document = await response.json(content_type=None) if plain else None
            return response.status, body, document


async def create_account(kube: client.Client, name: str, *allowed: rights.Right) -> str:
    """Return the token of a new account with this right in the namespace."""
    await kube.create(api_resources.SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": NS}})
    if allowed:
        role = rights.cluster_role(name, allowed)
        await kube.create(api_resources.CLUSTER_ROLES, role)
        binding = {
            "metadata": {"name": name, "namespace": NS},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NS}],
        }  # fmt: skip
        await kube.create(api_resources.ROLE_BINDINGS, binding)
    asked = {"kind": "TokenRequest", "spec": {}}
    response = await kube.create_sub(api_resources.SERVICE_ACCOUNTS, name, "token", asked, NS)
    return str(response["status"]["token"])


async def wait_until_finished(caller: Caller, job: str) -> Any:
    """Return the document of a job once it has finished."""
    async with asyncio.timeout(30):
        while True:
            _, _, document = await caller.ask("GET", f"/jobs/{job}")
            if document["phase"] in ("Succeeded", "Failed", "Cancelled"):
                return document
            await asyncio.sleep(0.05)


async def test_remote_workers_map_a_file(
    plane: cluster.ControlPlane, kube: client.Client, manager: in_cluster_server.InClusterServer
) -> None:
    await plane.start_node()
    caller = Caller(manager, await create_account(kube, "editor", *rights.EDIT, *rights.VIEW))
    status, _, made = await caller.ask("POST", "/jobs?itemsPerPart=4", data=SAMPLE.read_bytes())
    assert status == 202
    found = await wait_until_finished(caller, made["id"])
    assert (found["phase"], found["parts"]) == ("Succeeded", 6), found
    assert await caller.ask("GET", f"/jobs/{made['id']}/results") == (200, EXPECTED, None)


async def test_jobs_are_seen_and_created_only_with_rights(
    kube: client.Client, manager: in_cluster_server.InClusterServer
) -> None:
    anonymous = Caller(manager)
    outsider = Caller(manager, await create_account(kube, "stranger"))
    viewer = Caller(manager, await create_account(kube, "viewer", *rights.VIEW))
    driver = Caller(manager, await create_account(kube, "driver", *rights.DRIVE))
    data = SAMPLE.read_bytes()
    assert (await anonymous.ask("POST", "/jobs", data=data))[0] == 401
    assert (await outsider.ask("POST", "/jobs", data=data))[0] == 403
    status, _, refused = await viewer.ask("POST", "/jobs", data=data)
    assert status == 403
    assert 'cannot create resource "jobs" in API group "kilnwork.dev"' in refused["detail"]
    status, _, made = await driver.ask("POST", "/jobs", data=data)
    assert status == 202
    path = f"/jobs/{made['id']}"
    assert (await viewer.ask("GET", path))[0] == 200
    assert (await viewer.ask("GET", f"{path}/input"))[1] == data
    assert (await outsider.ask("GET", path))[0] == 403
    assert (await anonymous.ask("GET", "/jobs"))[0] == 401
    assert (await viewer.ask("POST", f"{path}/cancel"))[0] == 403
    assert (await driver.ask("POST", f"{path}/cancel"))[0] == 202
    assert (await viewer.ask("DELETE", path))[0] == 403
    assert (await driver.ask("DELETE", path))[0] in (202, 204)
    assert (await driver.ask("GET", path))[0] == 404
