"""Users' own kinds across restarts of the server."""

from pathlib import Path
from typing import Any

from conformance import test_crds
from support import served, waiting

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/w.test/v1/namespaces/default/widgets"


def widget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "w.test/v1",
        "kind": "Widget",
        "metadata": {"name": name, "finalizers": ["a.b/c"]},
        "spec": {"size": 1},
    }


async def test_a_kind_is_served_again_after_a_restart(tmp_path: Path) -> None:
    """At once, with its objects; a clean-up that was begun goes on."""
    async with served.control_plane(tmp_path / "data") as plane, served.http(plane) as http:
        assert (await http.post(CRDS, test_crds.definition("w.test"))).status == 201

        async def is_served() -> bool:
            return (await http.get(WIDGETS)).status == 200

        await waiting.wait_until_async(is_served, what="widgets are served")
        made = (await http.post(WIDGETS, widget("a"))).json
        owner = {key: made[key] for key in ("apiVersion", "kind")}
        owner |= {"name": "a", "uid": made["metadata"]["uid"]}
        owned = {"metadata": {"name": "c", "ownerReferences": [owner]}}
        await http.post("/api/v1/namespaces/default/configmaps", owned)
    async with served.control_plane(tmp_path / "data") as plane, served.http(plane) as http:
        assert (await http.get(f"{WIDGETS}/a")).json == made
        assert (await http.delete(f"{CRDS}/widgets.w.test")).status == 200
    async with served.control_plane(tmp_path / "data") as plane, served.http(plane) as http:
        assert (await http.get(f"{WIDGETS}/a")).json["metadata"]["deletionTimestamp"]
        await http.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})

        async def all_gone() -> bool:
            left = [f"{CRDS}/widgets.w.test", "/api/v1/namespaces/default/configmaps/c", WIDGETS]
            return all([(await http.get(path)).status == 404 for path in left])

        await waiting.wait_until_async(all_gone, what="kind, object and dependent are gone")


async def test_built_in_kinds_cannot_be_taken_away(tmp_path: Path) -> None:
    """A definition of their name serves nothing, and takes nothing with it when it goes."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    wanted = test_crds.definition("rbac.authorization.k8s.io")
    wanted["metadata"]["name"] = "clusterroles.rbac.authorization.k8s.io"
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    wanted["spec"]["names"] = {"kind": "ClusterRole", "plural": "clusterroles"}
    path = f"{CRDS}/{wanted['metadata']['name']}"
    async with served.control_plane(tmp_path / "data") as plane, served.http(plane) as http:
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
