"""Malformed requests: the response of each names the problem, and no other request is harmed."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support import embedded_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "command": ["true"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[embedded_server.Http]:
    async with (
        embedded_server.control_plane(tmp_path) as plane,
        embedded_server.http(plane) as client,
    ):
        yield client


async def test_unreadable_bodies_are_refused(http: embedded_server.Http) -> None:
    deep = b'{"a":' * 200_000 + b"1" + b"}" * 200_000
    for content_type in ("application/json", "application/yaml"):
        response = await http.send("POST", CONFIG_MAPS, io.BytesIO(deep), content_type=content_type)
        assert response.status == 400
        assert "levels deep" in response.message
    response = await http.send("POST", CONFIG_MAPS, b'{"data":{"a":"\xff"}}')
    assert response.status == 400
    assert (await http.get(CONFIG_MAPS)).status == 200


@pytest.mark.parametrize("version", ["9" * 30, "9" * 5000, "-1", "abc"])
async def test_impossible_resource_versions_are_refused(
    http: embedded_server.Http, version: str
) -> None:
    for query in (f"resourceVersion={version}", f"watch=1&resourceVersion={version}"):
        assert (await http.get(f"{CONFIG_MAPS}?{query}")).status == 400


async def test_absurd_grace_periods_and_preconditions_are_refused(
    http: embedded_server.Http,
) -> None:
    await http.send("POST", PODS, pod("p", nodeName="elsewhere"))
    response = await http.send("DELETE", f"{PODS}/p", {"preconditions": {"uid": ["x"]}})
    assert response.status == 500
    response = await http.send("DELETE", f"{PODS}/p?gracePeriodSeconds=99999999999999")
    assert response.status == 200
    assert (await http.send("DELETE", f"{PODS}/p?gracePeriodSeconds=0")).status == 200
    assert (await http.get(f"{PODS}/p")).status == 404


@pytest.mark.parametrize(
    "spec",
    [
        {"run": 10**30},
        {"run": 2**31},
        {"priority": -(10**30)},
        {"timeouts": {"runningSeconds": 10**400}},
        {"timeouts": {"totalSeconds": 1e300}},
        {"ttlSecondsAfterFinished": 10**18},
    ],
)
async def test_numbers_out_of_range_are_refused(http: embedded_server.Http, spec: Any) -> None:
    response = await http.post(
        TASKS, {"metadata": {"name": "t"}, "spec": {"command": ["x"]} | spec}
    )
    assert response.status == 422
    assert "spec." in response.message


async def test_binding_with_odd_metadata_is_refused(http: embedded_server.Http) -> None:
    await http.send("POST", PODS, pod("p", nodeSelector={"no": "node"}))
    response = await http.post(f"{PODS}/p/binding", {"target": {"name": "n"}, "metadata": 5})
    assert response.status == 400
