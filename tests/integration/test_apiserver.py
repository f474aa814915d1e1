"""Behaviour of the embedded API server alone: its directory, ports, restarts, scheduling, our
kinds.

Behaviour of every API server is tested in `tests/conformance`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster, installed_kind_types
from kilnwork.kit import asgi, errors
from support import embedded_server, waiting

CORE = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks"
TASK_OBJECTS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/taskobjects"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
FIRST_ROLES = ("view", "edit", "admin")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    async with embedded_server.control_plane(tmp_path / "data") as found:
        yield found


@pytest.fixture
async def http(plane: cluster.ControlPlane) -> AsyncIterator[embedded_server.Http]:
    async with embedded_server.http(plane) as found:
        yield found


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "data": {"a": "b"}}


def task(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"command": ["true"], **spec}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "host", "command": ["true"]}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


# --- objects -----------------------------------------------------------------------------------


async def test_concurrent_patches_are_all_applied(http: embedded_server.Http) -> None:
    await http.post(CONFIG_MAPS, config_map("a"))
    responses = await asyncio.gather(
        *(http.patch(f"{CONFIG_MAPS}/a", {"data": {f"k{i}": str(i)}}) for i in range(30))
    )
    assert {response.status for response in responses} == {200}
    data = (await http.get(f"{CONFIG_MAPS}/a")).json["data"]
    assert len(data) == 31


async def test_generation_rises_only_with_the_spec(http: embedded_server.Http) -> None:
    await http.post(TASKS, task("t"))
    labelled = await http.patch(f"{TASKS}/t", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 1
    status = await http.patch(f"{TASKS}/t/status", {"status": {"state": "Pending"}})
    assert status.json["metadata"]["generation"] == 1
    suspended = await http.patch(f"{TASKS}/t", {"spec": {"suspend": True}})
    assert suspended.json["metadata"]["generation"] == 2
    plain = (await http.post(CONFIG_MAPS, config_map("a"))).json
    assert "generation" not in plain["metadata"]


async def test_task_objects_are_immutable(http: embedded_server.Http) -> None:
    await http.post(TASK_OBJECTS, {"metadata": {"name": "o"}, "data": {"n": [1]}})
    changed = await http.patch(f"{TASK_OBJECTS}/o", {"data": {"n": [2]}})
    assert (changed.status, changed.json["reason"]) == (422, "Invalid")
    assert "field is immutable" in changed.message
    assert (
        await http.patch(f"{TASK_OBJECTS}/o", {"metadata": {"labels": {"a": "b"}}})
    ).status == 200


# --- bad requests ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", CONFIG_MAPS, b"{", 400, "json parse error"),
        ("POST", CONFIG_MAPS, b"[]", 400, "must be a JSON object"),
        ("GET", f"{TASKS}/t/nothing", None, 404, 'tasks.kilnwork.dev "t" not found'),
    ],
)
async def test_bad_request_gets_a_status_with_its_reason(
    http: embedded_server.Http, method: str, path: str, body: Any, status: int, text: str
) -> None:
    response = await http.send(method, path, body)
    assert (response.status, response.json["kind"]) == (status, "Status")
    assert text in response.message


async def test_roles_accept_strategic_merge_patches(http: embedded_server.Http) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    await http.post(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    patch = {"$setElementOrder/rules": [], "rules": [rule, rule | {"verbs": ["list"]}]}
    response = await http.patch(
        f"{RBAC}/roles/r", patch, content_type="application/strategic-merge-patch+json"
    )
    assert response.status == 200
    assert [r["verbs"] for r in response.json["rules"]] == [["get"], ["list"]]


# --- watches -----------------------------------------------------------------------------------


async def test_watch_of_another_data_directory_is_expired(http: embedded_server.Http) -> None:
    async with http.watch(f"{TASKS}?resourceVersion=99999") as stream:
        type_, status = await stream.next()
        assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert await stream.ended()


async def test_restart_keeps_objects_numbers_and_watches(tmp_path: Path) -> None:
    async with (
        embedded_server.control_plane(tmp_path) as first,
        embedded_server.http(first) as http,
    ):
        first.publish()
        version = (await http.get(TASKS)).json["metadata"]["resourceVersion"]
        made = (await http.post(TASKS, task("a"))).json
        await http.post(TASKS, task("b"))
        await http.delete(f"{TASKS}/b")
    async with (
        embedded_server.control_plane(tmp_path) as second,
        embedded_server.http(second) as http,
    ):
        assert second.port == first.port
        assert (await http.get(f"{TASKS}/a")).json == made
        async with http.watch(f"{TASKS}?resourceVersion={version}") as stream:
            assert await stream.names(3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b")]
            newer = (await http.post(TASKS, task("c"))).json
            assert await stream.names(1) == [("ADDED", "c")]
        assert int(newer["metadata"]["resourceVersion"]) > int(version) + 3


async def test_restart_adds_rules_of_new_kinds_to_the_first_roles(tmp_path: Path) -> None:
    mine = {"apiGroups": ["example.com"], "resources": ["boats"], "verbs": ["get"]}

    async def start(
        extended: installed_kind_types.Extensions, *, change: bool = False
    ) -> list[Any]:
        """The roles `view`, `edit` and `admin` after a start; before the next one two changed."""
        plane = cluster.ControlPlane(
            cluster.ControlPlaneSettings(data_dir=tmp_path, port=0, installed=extended)
        )
        await plane.start()
        try:
            async with embedded_server.http(plane) as http:
                roles = [(await http.get(f"{ROLES}/{name}")).json for name in FIRST_ROLES]
                if change:
                    changed = {"rules": [*roles[0]["rules"], mine]}
                    assert (await http.patch(f"{ROLES}/view", changed)).status == 200
                    held = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
                    kept = {"metadata": {"annotations": held}}
                    assert (await http.patch(f"{ROLES}/edit", kept)).status == 200
        finally:
            await plane.stop()
        return roles

    def has_tasks(role: dict[str, Any]) -> bool:
        return any("kilnwork.dev" in rule["apiGroups"] for rule in role["rules"])

    before = await start(installed_kind_types.Extensions(), change=True)
    assert not any(map(has_tasks, before))
    after = await start(embedded_crds.EXTENSIONS)
    assert [has_tasks(role) for role in after] == [True, False, True]
    assert mine in after[0]["rules"]
    assert await start(embedded_crds.EXTENSIONS) == after


async def test_stop_ends_watches(tmp_path: Path) -> None:
    plane = cluster.ControlPlane(
        cluster.ControlPlaneSettings(data_dir=tmp_path, port=0, installed=embedded_crds.EXTENSIONS)
    )
    await plane.start()
    async with embedded_server.http(plane) as http, http.watch(TASKS) as stream:
        async with asyncio.timeout(30):
            await plane.stop()
        assert await stream.ended()


# --- pods --------------------------------------------------------------------------------------


def node(name: str, *, ready: str = "True", **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, **more}, "spec": {}, "status": status}


async def test_pods_are_bound_to_a_ready_node(http: embedded_server.Http) -> None:
    await http.post(PODS, pod("p", nodeSelector={"disk": "fast"}))

    async def scheduled() -> Any:
        found = (await http.get(f"{PODS}/p")).json
        conditions = found["status"].get("conditions", ())
        return next((c for c in conditions if c["type"] == "PodScheduled"), None)

    waits = await waiting.wait_until_async(scheduled, what="a reason")
    assert (waits["status"], waits["reason"]) == ("False", "Unschedulable")
    assert waits["message"] == "0/0 nodes are available."
    await http.post("/api/v1/nodes", node("slow"))
    await http.post("/api/v1/nodes", node("away", ready="False", labels={"disk": "fast"}))

    async def explained() -> bool:
        found = await scheduled()
        return bool(found["message"].startswith("0/2 nodes are available: "))

    await waiting.wait_until_async(explained, what="both nodes are counted")
    await http.post("/api/v1/nodes", node("good", labels={"disk": "fast"}))

    async def bound() -> bool:
        return bool((await http.get(f"{PODS}/p")).json["spec"].get("nodeName") == "good")

    await waiting.wait_until_async(bound, what="the Pod is bound")
    assert (await scheduled())["status"] == "True"


async def test_logs_of_a_pod_that_runs_nowhere_are_refused(http: embedded_server.Http) -> None:
    await http.post(PODS, pod("p"))
    response = await http.get(f"{PODS}/p/log")
    assert response.status == 400
    assert "not bound to a node" in response.message
    assert (await http.get(f"{PODS}/nope/log")).status == 404


# --- the server --------------------------------------------------------------------------------


async def test_second_server_on_the_directory_is_refused_by_name(
    plane: cluster.ControlPlane,
) -> None:
    second = cluster.ControlPlane(
        cluster.ControlPlaneSettings(
            data_dir=plane.data_dir, port=0, installed=embedded_crds.EXTENSIONS
        )
    )
    with pytest.raises(errors.ConfigurationError, match=f"in use by process {os.getpid()} "):
        await second.start()


async def test_port_in_use_is_refused_by_name(plane: cluster.ControlPlane, tmp_path: Path) -> None:
    for port in (plane.port, plane.port - 1):
        second = cluster.ControlPlane(
            cluster.ControlPlaneSettings(
                data_dir=tmp_path / "b", port=port, installed=embedded_crds.EXTENSIONS
            )
        )
        with pytest.raises(errors.ConfigurationError, match=f"in use by process {os.getpid()} "):
            await second.start()


async def test_files_are_private(plane: cluster.ControlPlane) -> None:
    plane.publish(epoch=3, unix="/x")
    for name in ("token", "kubeconfig", "endpoints.json", "control.db", "pki/ca.key"):
        assert (plane.data_dir / name).stat().st_mode & 0o077 == 0, name
    endpoints = json.loads((plane.data_dir / "endpoints.json").read_text())
    assert endpoints["kubernetes"] == plane.address
    assert endpoints["http"] == plane.http_address
    assert (endpoints["pid"], endpoints["epoch"]) == (os.getpid(), 3)
    assert endpoints["channel"] == {"unix": "/x"}


async def test_mounted_apps_serve_both_ports_and_get_the_user(
    plane: cluster.ControlPlane,
) -> None:
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        user = await plane.authenticate(asgi.Request(scope, receive))
        body = f"{scope['path']} {'anonymous' if user is None else user.name}".encode()
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    plane.mount("/v1", mounted)
    token = (plane.data_dir / "token").read_text().strip()
    ca = plane.certificates.ca_certificate
    for address in (plane.address, plane.http_address):
        async with embedded_server.Http(address, ca=ca, token=token) as http:
            assert (await http.get("/v1/tasks")).json == "/v1/tasks kubernetes-admin"
        async with embedded_server.Http(address, ca=ca, token=None) as stranger:
            assert (await stranger.get("/v1/tasks")).json == "/v1/tasks anonymous"
            assert (await stranger.get("/v1beta")).status in (401, 403)
        async with embedded_server.Http(address, ca=ca, token="wrong") as liar:
            assert (await liar.get("/v1")).json == "/v1 anonymous"
            assert (await liar.get("/v1beta")).status == 401
    async with embedded_server.Http(plane.http_address, ca=ca, token=token) as http:
        assert (await http.get(PODS)).status == 404
        assert (await http.get("/healthz")).status == 200
