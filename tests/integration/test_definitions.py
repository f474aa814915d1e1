"""Users' own kinds and the kinds that come with the server, across restarts."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from conformance import test_crds
from kilnwork.cli import exits, main
from kilnwork.cli.wiring import embedded
from support import embedded_server, waiting

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/w.test/v1/namespaces/default/widgets"


def widget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "w.test/v1",
        "kind": "Widget",
        "metadata": {"name": name, "finalizers": ["a.b/c"]},
        "spec": {"size": 1},
    }


async def test_kind_is_served_again_after_a_restart(tmp_path: Path) -> None:
    """At once, with its objects; a clean-up that had begun continues."""
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert (await http.post(CRDS, test_crds.definition("w.test"))).status == 201

        async def is_served() -> bool:
            return (await http.get(WIDGETS)).status == 200

        await waiting.wait_until_async(is_served, what="widgets are served")
        made = (await http.post(WIDGETS, widget("a"))).json
        owner = {key: made[key] for key in ("apiVersion", "kind")}
        owner |= {"name": "a", "uid": made["metadata"]["uid"]}
        owned = {"metadata": {"name": "c", "ownerReferences": [owner]}}
        await http.post("/api/v1/namespaces/default/configmaps", owned)
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert (await http.get(f"{WIDGETS}/a")).json == made
        assert (await http.delete(f"{CRDS}/widgets.w.test")).status == 200
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):

        async def is_ending() -> bool:
            return "deletionTimestamp" in (await http.get(f"{WIDGETS}/a")).json["metadata"]

        await waiting.wait_until_async(is_ending, what="its objects are deleted")
        await http.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})

        async def all_gone() -> bool:
            left = [f"{CRDS}/widgets.w.test", "/api/v1/namespaces/default/configmaps/c", WIDGETS]
            return all([(await http.get(path)).status == 404 for path in left])

        await waiting.wait_until_async(all_gone, what="kind, object and dependent are gone")


async def test_definition_of_a_built_in_kind_is_not_served(tmp_path: Path) -> None:
    """A definition with the name of a built-in kind serves nothing, and its deletion removes
    nothing.
    """
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    wanted = test_crds.definition("rbac.authorization.k8s.io")
    wanted["metadata"]["name"] = "clusterroles.rbac.authorization.k8s.io"
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    wanted["spec"]["names"] = {"kind": "ClusterRole", "plural": "clusterroles"}
    path = f"{CRDS}/{wanted['metadata']['name']}"
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        before = len((await http.get(roles)).json["items"])
        assert before > 0
        assert (await http.post(CRDS, wanted)).status == 201

        async def is_judged() -> bool:
            conditions = ((await http.get(path)).json.get("status") or {}).get("conditions") or ()
            return {(c["type"], c["status"]) for c in conditions} == {
                ("NamesAccepted", "False"),
                ("Established", "False"),
            }

        await waiting.wait_until_async(is_judged, what="the names are refused")
        assert (await http.delete(path)).status == 200

        async def is_gone() -> bool:
            return (await http.get(path)).status == 404

        await waiting.wait_until_async(is_gone, what="the definition is gone")
        assert len((await http.get(roles)).json["items"]) == before


OURS = f"{CRDS}/tasks.kilnwork.dev"
AGAIN = "then start the server again"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks"


def named_as_ours(plural: str = "tazks", **spec: Any) -> dict[str, Any]:
    """A foreign definition in our group, for kind Task."""
    names = {"kind": "Task", "plural": plural}
    made = test_crds.definition("kilnwork.dev", names=names, **spec)
    made["spec"]["versions"][0]["name"] = "v1alpha1"
    return made


async def wait_until_gone(http: embedded_server.Http, path: str) -> None:
    async def is_gone() -> bool:
        return (await http.get(path)).status == 404

    await waiting.wait_until_async(is_gone, what=f"{path} is gone")


async def is_established(http: embedded_server.Http, path: str) -> bool:
    conditions = ((await http.get(path)).json.get("status") or {}).get("conditions") or ()
    return ("Established", "True") in {(c["type"], c["status"]) for c in conditions}


async def replace_ours(data: Path, other: dict[str, Any]) -> None:
    """Delete our definition of Task and create another in its place."""
    async with embedded_server.control_plane(data) as plane, embedded_server.http(plane) as http:
        assert plane.installed_problem is None
        await http.delete(OURS)
        await wait_until_gone(http, OURS)
        assert "tasks.kilnwork.dev was deleted: start the server again" in str(
            plane.installed_problem
        )
        assert (await http.post(CRDS, other)).status == 201
        path = f"{CRDS}/{other['metadata']['name']}"
        await waiting.wait_until_async(lambda: is_established(http, path), what="it is established")


async def test_name_conflict_keeps_the_definition_that_came_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of the two is served, as their statuses say; ours is served as soon as the other is
    deleted.
    """
    theirs = f"{CRDS}/tazks.kilnwork.dev"
    with caplog.at_level(logging.WARNING):
        await replace_ours(tmp_path / "data", named_as_ours())
        async with (
            embedded_server.control_plane(tmp_path / "data") as plane,
            embedded_server.http(plane) as http,
        ):
            assert await is_established(http, theirs)
            assert not await is_established(http, OURS)
            assert (await http.get(TASKS)).status == 404
            assert (await http.get(TASKS.replace("tasks", "tazks"))).status == 200
            assert "`kubectl delete crd tazks.kilnwork.dev`" in str(plane.installed_problem)
            assert not plane.serves_installed
            whys = [vars(r)["why"] for r in caplog.records if "why" in vars(r)]
            assert [why.partition(" tasks.kilnwork.dev")[0] for why in whys] == [
                f"tasks.kilnwork.dev is being deleted: wait until it is gone, {AGAIN}",
                "tasks.kilnwork.dev was deleted: start the server again to install it",
                "tazks.kilnwork.dev has names of",
            ]
            await http.delete(theirs)
            await waiting.wait_until_async(
                lambda: is_established(http, OURS), what="ours is served"
            )
            assert (await http.get(TASKS)).status == 200
            assert plane.installed_problem is None


async def test_definition_that_cannot_be_adopted_is_named(tmp_path: Path) -> None:
    """The message has the remedy; after that our kind is back at the next start."""
    await replace_ours(tmp_path / "data", named_as_ours("tasks", scope="Cluster"))
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert "spec.scope: Invalid value" in str(plane.installed_problem)
        assert "`kubectl delete crd tasks.kilnwork.dev`, then start" in str(plane.installed_problem)
        assert not plane.serves_installed
        await http.delete(OURS)
        await wait_until_gone(http, OURS)
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert plane.installed_problem is None
        assert (await http.get(TASKS)).status == 200


async def test_deleted_kind_of_ours_is_back_after_a_restart(tmp_path: Path) -> None:
    """Not before: until it is removed, it accepts no new objects."""
    task = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Task", "spec": {"command": ["true"]}}
    held = task | {"metadata": {"name": "held", "finalizers": ["a.b/c"]}}
    new = task | {"metadata": {"name": "new"}}
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert (await http.post(TASKS, held)).status == 201
        assert (await http.delete(OURS)).status == 200
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert "tasks.kilnwork.dev is being deleted" in str(plane.installed_problem)
        refused = await http.post(TASKS, new)
        assert (refused.status, refused.json["reason"]) == (405, "MethodNotAllowed")
        await http.patch(f"{TASKS}/held", {"metadata": {"finalizers": None}})
        await wait_until_gone(http, OURS)
    async with (
        embedded_server.control_plane(tmp_path / "data") as plane,
        embedded_server.http(plane) as http,
    ):
        assert plane.installed_problem is None
        assert (await http.post(TASKS, new)).status == 201


async def test_server_without_its_kinds_is_up_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """So that the definitions can be repaired; commands say that a restart does it."""
    await replace_ours(tmp_path / "data", named_as_ours())
    settings = embedded.EmbeddedSettings(
        data_dir=tmp_path / "data", port=0, workdir=tmp_path, slots=1
    )
    server = embedded.EmbeddedServer(settings, on_failure=print)
    ca = tmp_path / "data" / "pki" / "ca.crt"
    try:
        await server.start(say=lambda _: None)
        async with embedded_server.Http(server.http_url, ca=ca, token=None) as http:
            ready = await http.get("/readyz")
        assert ready.status == 503
        assert "[-]API server not ready: tazks.kilnwork.dev has names of tasks" in ready.json
        assert "[-]controllers not ready: kinds were missing at the start" in ready.json
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        code = await asyncio.to_thread(main.main, ["run", "--", "true"])
    finally:
        await server.stop(say=lambda _: None)
    output = capfd.readouterr().err
    assert (code, "a restart of `kiln up`" in output) == (exits.Exit.UNREACHABLE, True), output
    assert "kiln install" not in output
