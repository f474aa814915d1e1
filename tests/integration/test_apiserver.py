"""The API server over HTTPS, as any client sees it."""

import asyncio
import io
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import embedded_kinds
from kilnwork.controlplane import cluster, extensions
from kilnwork.kit import asgi, errors
from support import served, waiting

CORE = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks"
TASK_OBJECTS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/taskobjects"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
FIRST_ROLES = ("view", "edit", "admin")
ROOT_CA = "kube-root-ca.crt"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    async with served.control_plane(tmp_path / "data") as found:
        yield found


@pytest.fixture
async def http(plane: cluster.ControlPlane) -> AsyncIterator[served.Http]:
    async with served.http(plane) as found:
        yield found


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "data": {"a": "b"}}


def task(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"command": ["true"], **spec}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "host", "command": ["true"]}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# --- objects -----------------------------------------------------------------------------------


async def test_create_read_replace_delete(http: served.Http) -> None:
    made = await http.post(CONFIG_MAPS, config_map("a"))
    assert made.status == 201
    metadata = made.json["metadata"]
    assert made.json["kind"] == "ConfigMap"
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    read = await http.get(f"{CONFIG_MAPS}/a")
    assert (read.status, read.json) == (200, made.json)
    changed = await http.put(f"{CONFIG_MAPS}/a", made.json | {"data": {"a": "c"}})
    assert changed.status == 200
    assert changed.json["data"] == {"a": "c"}
    assert int(changed.json["metadata"]["resourceVersion"]) > int(metadata["resourceVersion"])
    gone = await http.delete(f"{CONFIG_MAPS}/a")
    assert (gone.status, gone.json["status"]) == (200, "Success")
    assert gone.json["details"] == {"name": "a", "kind": "configmaps", "uid": metadata["uid"]}
    missing = await http.get(f"{CONFIG_MAPS}/a")
    assert (missing.status, missing.json["reason"]) == (404, "NotFound")
    assert missing.message == 'configmaps "a" not found'


async def test_a_name_is_taken_once(http: served.Http) -> None:
    await http.post(TASKS, task("t"))
    again = await http.post(TASKS, task("t"))
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
    assert again.message == 'tasks.kilnwork.dev "t" already exists'
    assert again.json["details"] == {"name": "t", "group": "kilnwork.dev", "kind": "tasks"}


async def test_generate_name(http: served.Http) -> None:
    bodies = [{"metadata": {"generateName": "run-"}, "spec": {"command": ["true"]}}] * 20
    made = await asyncio.gather(*(http.post(TASKS, body) for body in bodies))
    found = {answer.json["metadata"]["name"] for answer in made}
    assert len(found) == 20
    assert all(name.startswith("run-") and len(name) == 9 for name in found)


async def test_what_a_client_may_not_set_is_the_servers(http: served.Http) -> None:
    given = {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z"}
    made = await http.post(TASKS, task("t") | {"metadata": {"name": "t", **given}})
    metadata = made.json["metadata"]
    assert metadata["generation"] == 1
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")


async def test_a_conflict_is_detected_by_resource_version(http: served.Http) -> None:
    made = (await http.post(CONFIG_MAPS, config_map("a"))).json
    await http.patch(f"{CONFIG_MAPS}/a", {"data": {"a": "2"}})
    stale = await http.put(f"{CONFIG_MAPS}/a", made | {"data": {}})
    assert (stale.status, stale.json["reason"]) == (409, "Conflict")
    assert stale.message.startswith('Operation cannot be fulfilled on configmaps "a": the object')
    patched = await http.patch(
        f"{CONFIG_MAPS}/a",
        {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "y"}},
    )
    assert patched.status == 409
    del made["metadata"]["resourceVersion"]
    assert (await http.put(f"{CONFIG_MAPS}/a", made)).status == 200
    custom = (await http.post(TASKS, task("t"))).json
    del custom["metadata"]["resourceVersion"]
    unconditional = await http.put(f"{TASKS}/t", custom)
    assert unconditional.status == 422
    assert "Invalid value: 0x0: must be specified for an update" in unconditional.message


async def test_concurrent_patches_all_count(http: served.Http) -> None:
    await http.post(CONFIG_MAPS, config_map("a"))
    answers = await asyncio.gather(
        *(http.patch(f"{CONFIG_MAPS}/a", {"data": {f"k{i}": str(i)}}) for i in range(30))
    )
    assert {answer.status for answer in answers} == {200}
    data = (await http.get(f"{CONFIG_MAPS}/a")).json["data"]
    assert len(data) == 31


async def test_only_one_of_concurrent_updates_of_a_version_wins(http: served.Http) -> None:
    made = (await http.post(CONFIG_MAPS, config_map("a"))).json
    answers = await asyncio.gather(
        *(http.put(f"{CONFIG_MAPS}/a", made | {"data": {"n": str(i)}}) for i in range(10))
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9


async def test_an_update_that_changes_nothing_is_not_a_change(http: served.Http) -> None:
    made = (await http.post(TASKS, task("t"))).json
    again = await http.patch(f"{TASKS}/t", {"spec": {"command": ["true"]}})
    assert again.json == made
    assert (await http.put(f"{TASKS}/t", made)).json == made


async def test_generation_counts_changes_of_the_spec_only(http: served.Http) -> None:
    await http.post(TASKS, task("t"))
    labelled = await http.patch(f"{TASKS}/t", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.json["metadata"]["generation"] == 1
    status = await http.patch(f"{TASKS}/t/status", {"status": {"state": "Pending"}})
    assert status.json["metadata"]["generation"] == 1
    suspended = await http.patch(f"{TASKS}/t", {"spec": {"suspend": True}})
    assert suspended.json["metadata"]["generation"] == 2
    plain = (await http.post(CONFIG_MAPS, config_map("a"))).json
    assert "generation" not in plain["metadata"]


async def test_spec_and_status_are_written_apart(http: served.Http) -> None:
    made = await http.post(TASKS, task("t") | {"status": {"state": "Success"}})
    assert "status" not in made.json
    both = {"spec": {"priority": 3}, "status": {"state": "Running"}}
    main = await http.patch(f"{TASKS}/t", both)
    assert main.json["spec"]["priority"] == 3
    assert "status" not in main.json
    below = await http.patch(f"{TASKS}/t/status", {**both, "spec": {"priority": 9}})
    assert below.json["status"] == {"state": "Running"}
    assert below.json["spec"]["priority"] == 3
    whole = below.json | {"status": {"state": "Failed"}, "spec": {"command": ["no"]}}
    put = await http.put(f"{TASKS}/t/status", whole)
    assert (put.json["status"], put.json["spec"]["command"]) == ({"state": "Failed"}, ["true"])
    assert (await http.get(f"{TASKS}/t/status")).json == put.json
    assert (await http.get(f"{CONFIG_MAPS}/{ROOT_CA}/status")).status == 404


async def test_dry_run_keeps_nothing(http: served.Http) -> None:
    made = await http.post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
    assert (made.status, made.json["metadata"]["name"]) == (201, "a")
    assert (await http.get(f"{CONFIG_MAPS}/a")).status == 404
    await http.post(CONFIG_MAPS, config_map("a"))
    patched = await http.patch(f"{CONFIG_MAPS}/a?dryRun=All", {"data": {"a": "x"}})
    assert patched.json["data"] == {"a": "x"}
    await http.delete(f"{CONFIG_MAPS}/a?dryRun=All")
    assert (await http.get(f"{CONFIG_MAPS}/a")).json["data"] == {"a": "b"}
    assert (await http.post(f"{CONFIG_MAPS}?dryRun=Some", config_map("z"))).status == 422


async def test_field_validation(http: served.Http) -> None:
    wrong = task("t", foo=1, bar=2)
    strict = await http.post(f"{TASKS}?fieldValidation=Strict", wrong)
    assert strict.status == 400
    assert 'unknown field "spec.foo"' in strict.message
    warned = await http.post(f"{TASKS}?fieldValidation=Warn", wrong)
    assert warned.status == 201
    assert 'unknown field \\"spec.' in warned.headers["Warning"]
    assert "foo" not in warned.json["spec"]
    ignored = await http.post(
        f"{TASKS}?fieldValidation=Ignore", wrong | {"metadata": {"name": "u"}}
    )
    assert "Warning" not in ignored.headers


async def test_task_objects_are_immutable(http: served.Http) -> None:
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
        ("POST", CONFIG_MAPS, {"metadata": {"name": 3}}, 400, "cannot unmarshal number"),
        ("POST", CONFIG_MAPS, {"metadata": {}}, 422, "name or generateName is required"),
        ("POST", CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "x"}}, 400, "ConfigMap"),
        ("POST", CONFIG_MAPS, config_map("a", namespace="other"), 400, "does not match"),
        ("POST", CONFIG_MAPS, config_map("A_b"), 422, "metadata.name: Invalid value"),
        ("POST", f"{CONFIG_MAPS}/a", config_map("a"), 405, "does not allow this method"),
        ("PUT", CONFIG_MAPS, config_map("a"), 405, "does not allow this method"),
        ("PUT", f"{CONFIG_MAPS}/{ROOT_CA}", config_map("b"), 400, "does not match the name"),
        ("PATCH", f"{CONFIG_MAPS}/nope", {"data": {}}, 404, "not found"),
        ("GET", f"{CORE}/nothings", None, 404, "could not find the requested resource"),
        ("GET", f"{TASKS}/t/nothing", None, 404, 'tasks.kilnwork.dev "t" not found'),
        ("GET", f"{CONFIG_MAPS}?labelSelector=a==b==c", None, 400, "found '==', expected"),
        ("GET", f"{CONFIG_MAPS}?fieldSelector=data.a=b", None, 400, "not a known field selector"),
        ("GET", f"{CONFIG_MAPS}?limit=x", None, 400, "ParseInt"),
        ("GET", f"{CONFIG_MAPS}?continue=x", None, 400, "continue key is not valid"),
        ("GET", f"{CONFIG_MAPS}?resourceVersion=x", None, 400, "invalid resource version"),
        ("POST", "/api/v1/namespaces/nope/pods", pod("p"), 404, 'namespaces "nope" not found'),
        ("OPTIONS", CONFIG_MAPS, None, 405, "does not allow this method"),
    ],
)
async def test_bad_requests_get_a_clear_status(
    http: served.Http, method: str, path: str, body: Any, status: int, text: str
) -> None:
    content = served.MERGE if method == "PATCH" else "application/json"
    answer = await http.send(method, path, body, content_type=content)
    assert (answer.status, answer.json["kind"]) == (status, "Status")
    assert text in answer.message


async def test_roles_take_strategic_merge(http: served.Http) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    await http.post(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    patch = {"$setElementOrder/rules": [], "rules": [rule, rule | {"verbs": ["list"]}]}
    answer = await http.patch(
        f"{RBAC}/roles/r", patch, content_type="application/strategic-merge-patch+json"
    )
    assert answer.status == 200
    assert [r["verbs"] for r in answer.json["rules"]] == [["get"], ["list"]]


async def test_our_kinds_take_no_strategic_merge(http: served.Http) -> None:
    await http.post(TASKS, task("t"))
    answer = await http.patch(
        f"{TASKS}/t", {}, content_type="application/strategic-merge-patch+json"
    )
    assert answer.status == 415
    assert "application/merge-patch+json" in answer.message


async def test_large_bodies_are_refused(http: served.Http) -> None:
    body = json.dumps(config_map("big") | {"data": {"a": "x" * (3 * 1024 * 1024)}}).encode()
    answer = await http.post(CONFIG_MAPS, io.BytesIO(body))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert (await http.get("/version")).status == 200


async def test_nobody_gets_in_without_a_credential(plane: cluster.ControlPlane) -> None:
    async with served.http(plane, token=None) as nobody:
        for path in (CONFIG_MAPS, "/api", "/openapi/v3", "/v1/anything"):
            answer = await nobody.get(path)
            assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
            assert 'User "system:anonymous" cannot' in answer.message
        assert (await nobody.get("/healthz")).json == "ok"
        assert (await nobody.get("/version")).json["major"] == "1"
    async with served.http(plane, token="wrong") as stranger:
        assert (await stranger.get(CONFIG_MAPS)).status == 401


async def test_service_accounts_have_the_rights_of_their_roles(
    plane: cluster.ControlPlane, http: served.Http
) -> None:
    await http.post(f"{CORE}/serviceaccounts", {"metadata": {"name": "worker"}})
    rule = {"apiGroups": ["kilnwork.dev"], "resources": ["tasks"], "verbs": ["get", "create"]}
    await http.post(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subject = {"kind": "ServiceAccount", "name": "worker", "namespace": "default"}
    await http.post(
        f"{RBAC}/rolebindings",
        {"metadata": {"name": "rb"}, "roleRef": reference, "subjects": [subject]},
    )
    answer = await http.post(f"{CORE}/serviceaccounts/worker/token", {"spec": {}})
    assert answer.status == 201
    async with served.http(plane, token=answer.json["status"]["token"]) as worker:
        assert (await worker.post(TASKS, task("t"))).status == 201
        assert (await worker.get(f"{TASKS}/t")).status == 200
        refused = await worker.delete(f"{TASKS}/t")
        assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
        assert refused.message == (
            'tasks.kilnwork.dev "t" is forbidden: User "system:serviceaccount:default:worker" '
            'cannot delete resource "tasks" in API group "kilnwork.dev" in the namespace "default"'
        )
        asked = {"resourceAttributes": {"namespace": "default", "verb": "list", "resource": "pods"}}
        review = await worker.post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": asked}
        )
        assert review.json["status"] == {"allowed": False}
        pretended = await worker.get(f"{TASKS}/t", headers={"Impersonate-User": "root"})
        assert (pretended.status, "impersonate" in pretended.message) == (403, True)
    acting = {"Impersonate-User": "system:serviceaccount:default:worker"}
    assert (await http.get(f"{TASKS}/t", headers=acting)).status == 200
    assert (await http.get(PODS, headers=acting)).status == 403
    await http.delete(f"{CORE}/serviceaccounts/worker")
    async with served.http(plane, token=answer.json["status"]["token"]) as gone:
        assert (await gone.get(f"{TASKS}/t")).status == 401


# --- lists -------------------------------------------------------------------------------------


async def test_lists_are_paged_and_show_one_moment(http: served.Http) -> None:
    for i in range(5):
        await http.post(TASKS, task(f"t{i}"))
    first = (await http.get(f"{TASKS}?limit=2")).json
    assert names(first) == ["t0", "t1"]
    assert first["metadata"]["remainingItemCount"] == 3
    await http.delete(f"{TASKS}/t3")
    await http.post(TASKS, task("t2a"))
    token = first["metadata"]["continue"]
    second = (await http.get(f"{TASKS}?limit=2&continue={token}")).json
    assert names(second) == ["t2", "t3"]
    token = second["metadata"]["continue"]
    third = (await http.get(f"{TASKS}?limit=2&continue={token}")).json
    assert names(third) == ["t4"]
    assert not third["metadata"].get("continue")
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert names((await http.get(TASKS)).json) == ["t0", "t1", "t2", "t2a", "t4"]
    exact = f"{TASKS}?resourceVersion={first['metadata']['resourceVersion']}&resourceVersionMatch="
    assert len(names((await http.get(f"{exact}Exact")).json)) == 5
    assert names((await http.get(f"{exact}NotOlderThan")).json)[3] == "t2a"


async def test_a_list_from_the_future_is_refused(http: served.Http) -> None:
    answer = await http.get(f"{TASKS}?resourceVersion=99999")
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert "Too large resource version" in answer.message


async def test_lists_are_selected_by_labels_and_fields(http: served.Http) -> None:
    await http.post(CONFIG_MAPS, config_map("a", labels={"app": "x", "tier": "1"}))
    await http.post(CONFIG_MAPS, config_map("b", labels={"app": "y"}))
    await http.post(PODS, pod("p", nodeName="n1"))
    await http.post(PODS, pod("q"))

    async def found(query: str) -> list[str]:
        return names((await http.get(query)).json)

    assert await found(f"{CONFIG_MAPS}?labelSelector=app") == ["a", "b"]
    assert await found(f"{CONFIG_MAPS}?labelSelector=app%3Dx,tier") == ["a"]
    assert await found(f"{CONFIG_MAPS}?labelSelector=app+notin+(x)") == ["b", ROOT_CA]
    assert await found(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Db") == ["b"]
    assert await found(f"{PODS}?fieldSelector=spec.nodeName%3Dn1") == ["p"]
    assert await found(f"{PODS}?fieldSelector=spec.nodeName%3D") == ["q"]
    assert await found(f"{PODS}?fieldSelector=status.phase!%3DPending") == []
    assert len(await found("/api/v1/configmaps?fieldSelector=metadata.namespace!%3Ddefault")) == 3


async def test_a_list_can_be_a_table(http: served.Http) -> None:
    await http.post(CONFIG_MAPS, config_map("a"))
    table = (await http.get(CONFIG_MAPS, headers=TABLE)).json
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1], [ROOT_CA, 1]]
    one = (await http.get(f"{CONFIG_MAPS}/a", headers=TABLE)).json
    assert (one["kind"], len(one["rows"])) == ("Table", 1)
    partial = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    listed = (await http.get(CONFIG_MAPS, headers=partial)).json
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "data" not in listed["items"][0]
    refused = await http.get(CONFIG_MAPS, headers={"Accept": "application/xml"})
    assert (refused.status, refused.json["reason"]) == (406, "NotAcceptable")


# --- watches -----------------------------------------------------------------------------------


async def test_a_watch_tells_what_happens_after_a_list(http: served.Http) -> None:
    await http.post(TASKS, task("old"))
    version = (await http.get(TASKS)).json["metadata"]["resourceVersion"]
    await http.post(TASKS, task("before"))
    async with http.watch(f"{TASKS}?resourceVersion={version}") as stream:
        await http.post(TASKS, task("after"))
        await http.patch(f"{TASKS}/after", {"spec": {"priority": 1}})
        await http.delete(f"{TASKS}/old")
        await http.post(TASK_OBJECTS, {"metadata": {"name": "other"}, "data": 1})
        assert await stream.names(4) == [
            ("ADDED", "before"),
            ("ADDED", "after"),
            ("MODIFIED", "after"),
            ("DELETED", "old"),
        ]


async def test_a_watch_without_version_begins_with_everything(http: served.Http) -> None:
    await http.post(TASKS, task("a"))
    async with http.watch(TASKS) as stream:
        await http.post(TASKS, task("b"))
        assert await stream.names(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_by_selector_sees_objects_come_and_go(http: served.Http) -> None:
    version = (await http.get(CONFIG_MAPS)).json["metadata"]["resourceVersion"]
    path = f"{CONFIG_MAPS}?resourceVersion={version}&labelSelector=on%3Dyes"
    async with http.watch(path) as stream:
        await http.post(CONFIG_MAPS, config_map("a"))
        await http.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "yes"}}})
        await http.patch(f"{CONFIG_MAPS}/a", {"data": {"a": "c"}})
        last = await http.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "no"}}})
        await http.delete(f"{CONFIG_MAPS}/a")
        assert await stream.names(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        type_, obj = await stream.next()
        assert (type_, obj["metadata"]["labels"]) == ("DELETED", {"on": "yes"})
        assert obj["metadata"]["resourceVersion"] == last.json["metadata"]["resourceVersion"]
        await http.post(CONFIG_MAPS, config_map("z", labels={"on": "yes"}))
        assert await stream.names(1) == [("ADDED", "z")]


async def test_initial_events_end_with_a_bookmark(http: served.Http) -> None:
    await http.post(TASKS, task("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with http.watch(f"{TASKS}?{query}") as stream:
        assert await stream.names(1) == [("ADDED", "a")]
        type_, obj = await stream.next()
        assert (type_, obj["kind"]) == ("BOOKMARK", "Task")
        assert obj["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    assert (await http.get(f"{TASKS}?watch=1&sendInitialEvents=true")).status == 422


async def test_a_watch_ends_when_its_time_is_over(http: served.Http) -> None:
    version = (await http.get(TASKS)).json["metadata"]["resourceVersion"]
    async with http.watch(f"{TASKS}?timeoutSeconds=1&resourceVersion={version}") as stream:
        assert await stream.ended()


async def test_a_watch_from_another_directory_must_list_again(http: served.Http) -> None:
    async with http.watch(f"{TASKS}?resourceVersion=99999") as stream:
        type_, status = await stream.next()
        assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert await stream.ended()


async def test_a_watch_can_be_of_tables(http: served.Http) -> None:
    async with http.watch(TASKS, headers=TABLE) as stream:
        await http.post(TASKS, task("a"))
        type_, table = await stream.next()
        assert (type_, table["kind"], table["rows"][0]["cells"][0]) == ("ADDED", "Table", "a")


async def test_a_restart_keeps_objects_numbers_and_watches(tmp_path: Path) -> None:
    async with served.control_plane(tmp_path) as first, served.http(first) as http:
        first.publish()
        version = (await http.get(TASKS)).json["metadata"]["resourceVersion"]
        made = (await http.post(TASKS, task("a"))).json
        await http.post(TASKS, task("b"))
        await http.delete(f"{TASKS}/b")
    async with served.control_plane(tmp_path) as second, served.http(second) as http:
        assert second.port == first.port
        assert (await http.get(f"{TASKS}/a")).json == made
        async with http.watch(f"{TASKS}?resourceVersion={version}") as stream:
            assert await stream.names(3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b")]
            newer = (await http.post(TASKS, task("c"))).json
            assert await stream.names(1) == [("ADDED", "c")]
        assert int(newer["metadata"]["resourceVersion"]) > int(version) + 3


async def test_a_restart_adds_rules_of_new_kinds_to_the_first_roles(tmp_path: Path) -> None:
    mine = {"apiGroups": ["example.com"], "resources": ["boats"], "verbs": ["get"]}

    async def start(extended: extensions.Extensions, *, change: bool = False) -> list[Any]:
        """The roles `view`, `edit` and `admin` after a start; before the next one two changed."""
        plane = cluster.ControlPlane(
            cluster.Settings(data_dir=tmp_path, port=0, installed=extended)
        )
        await plane.start()
        try:
            async with served.http(plane) as http:
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

    before = await start(extensions.Extensions(), change=True)
    assert not any(map(has_tasks, before))
    after = await start(embedded_kinds.EXTENSIONS)
    assert [has_tasks(role) for role in after] == [True, False, True]
    assert mine in after[0]["rules"]
    assert await start(embedded_kinds.EXTENSIONS) == after


async def test_a_stop_ends_watches(tmp_path: Path) -> None:
    plane = cluster.ControlPlane(
        cluster.Settings(data_dir=tmp_path, port=0, installed=embedded_kinds.EXTENSIONS)
    )
    await plane.start()
    async with served.http(plane) as http, http.watch(TASKS) as stream:
        async with asyncio.timeout(30):
            await plane.stop()
        assert await stream.ended()


# --- deletion ----------------------------------------------------------------------------------


async def test_deletion_may_demand_a_uid_or_version(http: served.Http) -> None:
    made = (await http.post(CONFIG_MAPS, config_map("a"))).json["metadata"]
    wrong = await http.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": "x"}})
    assert wrong.status == 409
    assert "the UID in the precondition (x) does not match" in wrong.message
    stale = await http.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert stale.status == 409
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert (await http.delete(f"{CONFIG_MAPS}/a", {"preconditions": right})).status == 200


async def test_finalizers_hold_an_object_back(http: served.Http) -> None:
    await http.post(TASKS, task("t") | {"metadata": {"name": "t", "finalizers": ["x.io/f"]}})
    marked = await http.delete(f"{TASKS}/t")
    assert marked.status == 200
    assert marked.json["metadata"]["deletionTimestamp"]
    assert marked.json["metadata"]["generation"] == 2
    again = await http.delete(f"{TASKS}/t")
    assert again.json == marked.json
    added = await http.patch(f"{TASKS}/t", {"metadata": {"finalizers": ["x.io/f", "x.io/g"]}})
    assert added.status == 422
    assert "no new finalizers can be added" in added.message
    assert (await http.patch(f"{TASKS}/t", {"metadata": {"finalizers": None}})).status == 200
    assert (await http.get(f"{TASKS}/t")).status == 404


async def test_a_bound_pod_is_deleted_by_its_node(http: served.Http) -> None:
    made = await http.post(PODS, pod("p", nodeName="n1", terminationGracePeriodSeconds=7))
    assert made.status == 201
    marked = (await http.delete(f"{PODS}/p")).json["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 7
    shorter = (await http.delete(f"{PODS}/p?gracePeriodSeconds=3")).json["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 3
    assert shorter["deletionTimestamp"] <= marked["deletionTimestamp"]
    longer = (await http.delete(f"{PODS}/p?gracePeriodSeconds=60")).json["metadata"]
    assert longer == shorter
    await http.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await http.get(f"{PODS}/p")).status == 404


async def test_a_pod_that_runs_nowhere_goes_at_once(http: served.Http) -> None:
    await http.post(PODS, pod("p"))
    await http.delete(f"{PODS}/p")
    assert (await http.get(f"{PODS}/p")).status == 404


async def test_a_collection_is_deleted_by_selector(http: served.Http) -> None:
    for name, on in (("a", "1"), ("b", "1"), ("c", "2")):
        await http.post(CONFIG_MAPS, config_map(name, labels={"on": on}))
    deleted = await http.delete(f"{CONFIG_MAPS}?labelSelector=on%3D1")
    assert names(deleted.json) == ["a", "b"]
    assert names((await http.get(CONFIG_MAPS)).json) == ["c", ROOT_CA]


async def gone(http: served.Http, path: str) -> None:
    async def look() -> bool:
        return (await http.get(path)).status == 404

    await waiting.wait_until_async(look, what=f"{path} is gone")


async def test_dependents_go_with_their_owner(http: served.Http) -> None:
    owner = (await http.post(CONFIG_MAPS, config_map("owner"))).json
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owned = reference | {"uid": owner["metadata"]["uid"]}
    await http.post(CONFIG_MAPS, config_map("child", ownerReferences=[owned]))
    await http.post(f"{CORE}/secrets", config_map("grandchild") | {"data": {}})
    await http.delete(f"{CONFIG_MAPS}/owner")
    await gone(http, f"{CONFIG_MAPS}/child")
    absent = reference | {"uid": "11111111-1111-1111-1111-111111111111"}
    await http.post(CONFIG_MAPS, config_map("orphan", ownerReferences=[absent]))
    await gone(http, f"{CONFIG_MAPS}/orphan")
    assert (await http.get(f"{CORE}/secrets/grandchild")).status == 200


async def test_a_namespace_is_furnished_and_goes_with_its_contents(http: served.Http) -> None:
    made = await http.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert (made.status, made.json["status"]["phase"]) == (201, "Active")
    inside = "/api/v1/namespaces/team"
    assert (await http.get(f"{inside}/serviceaccounts/default")).status == 200
    assert "BEGIN CERT" in (await http.get(f"{inside}/configmaps/{ROOT_CA}")).json["data"]["ca.crt"]
    held = {"metadata": {"name": "held", "finalizers": ["x.io/f"]}}
    assert (await http.post(f"{inside}/configmaps", held)).status == 201
    ending = await http.delete(inside)
    assert ending.json["status"]["phase"] == "Terminating"
    await gone(http, f"{inside}/serviceaccounts/default")
    refused = await http.post(f"{inside}/configmaps", config_map("late"))
    assert refused.status == 403
    assert "because it is being terminated" in refused.message
    await http.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}})
    await gone(http, inside)
    kept = await http.delete("/api/v1/namespaces/default")
    assert (kept.status, "may not be deleted" in kept.message) == (403, True)


async def test_what_every_namespace_needs_comes_back(http: served.Http) -> None:
    before = (await http.get(f"{CORE}/serviceaccounts/default")).json["metadata"]["uid"]
    await http.delete(f"{CORE}/serviceaccounts/default")

    async def look() -> bool:
        answer = await http.get(f"{CORE}/serviceaccounts/default")
        return bool(answer.status == 200 and answer.json["metadata"]["uid"] != before)

    await waiting.wait_until_async(look, what="the default account is back")


# --- pods --------------------------------------------------------------------------------------


def node(name: str, *, ready: str = "True", **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, **more}, "spec": {}, "status": status}


async def test_pods_are_bound_to_a_ready_node(http: served.Http) -> None:
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


async def test_a_binding_is_made_once(http: served.Http) -> None:
    await http.post(PODS, pod("p", schedulerName="mine"))
    target = {"kind": "Node", "name": "n"}
    binding = {"metadata": {"name": "p"}, "kind": "Binding", "apiVersion": "v1", "target": target}
    assert (await http.post(f"{PODS}/p/binding", binding)).status == 201
    assert (await http.get(f"{PODS}/p")).json["spec"]["nodeName"] == "n"
    again = await http.post(f"{PODS}/p/binding", binding)
    assert again.status == 409
    assert 'pod p is already assigned to node "n"' in again.message


async def test_an_eviction_is_a_deletion(http: served.Http) -> None:
    await http.post(PODS, pod("p"))
    answer = await http.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert answer.status == 201
    assert (await http.get(f"{PODS}/p")).status == 404


async def test_logs_of_a_pod_that_runs_nowhere_are_refused(http: served.Http) -> None:
    await http.post(PODS, pod("p"))
    answer = await http.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert "not bound to a node" in answer.message
    assert (await http.get(f"{PODS}/nope/log")).status == 404


# --- the server --------------------------------------------------------------------------------


async def test_a_second_server_on_the_directory_is_refused_by_name(
    plane: cluster.ControlPlane,
) -> None:
    second = cluster.ControlPlane(
        cluster.Settings(data_dir=plane.data_dir, port=0, installed=embedded_kinds.EXTENSIONS)
    )
    with pytest.raises(errors.ConfigurationError, match=f"in use by process {os.getpid()} "):
        await second.start()


async def test_a_port_in_use_is_refused_by_name(
    plane: cluster.ControlPlane, tmp_path: Path
) -> None:
    for port in (plane.port, plane.port - 1):
        second = cluster.ControlPlane(
            cluster.Settings(
                data_dir=tmp_path / "b", port=port, installed=embedded_kinds.EXTENSIONS
            )
        )
        with pytest.raises(errors.ConfigurationError, match=f"in use by process {os.getpid()} "):
            await second.start()


async def test_files_are_private(plane: cluster.ControlPlane) -> None:
    plane.publish(epoch=3, channel=cluster.Channel(unix="/x"))
    for name in ("token", "kubeconfig", "endpoints.json", "control.db", "pki/ca.key"):
        assert (plane.data_dir / name).stat().st_mode & 0o077 == 0, name
    endpoints = json.loads((plane.data_dir / "endpoints.json").read_text())
    assert endpoints["kubernetes"] == plane.address
    assert endpoints["http"] == plane.http_address
    assert (endpoints["pid"], endpoints["epoch"]) == (os.getpid(), 3)
    assert endpoints["channel"] == {"unix": "/x"}


async def test_mounted_apps_are_on_both_ports_and_learn_who_comes(
    plane: cluster.ControlPlane,
) -> None:
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        user = await plane.authenticate(asgi.Request(scope, receive))
        body = f"{scope['path']} {'nobody' if user is None else user.name}".encode()
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    plane.mount("/v1", mounted)
    token = (plane.data_dir / "token").read_text().strip()
    ca = plane.certificates.ca_certificate
    for address in (plane.address, plane.http_address):
        async with served.Http(address, ca=ca, token=token) as http:
            assert (await http.get("/v1/tasks")).json == "/v1/tasks kubernetes-admin"
        async with served.Http(address, ca=ca, token=None) as stranger:
            assert (await stranger.get("/v1/tasks")).json == "/v1/tasks nobody"
            assert (await stranger.get("/v1beta")).status in (401, 403)
        async with served.Http(address, ca=ca, token="wrong") as liar:
            assert (await liar.get("/v1")).json == "/v1 nobody"
            assert (await liar.get("/v1beta")).status == 401
    async with served.Http(plane.http_address, ca=ca, token=token) as http:
        assert (await http.get(PODS)).status == 404
        assert (await http.get("/healthz")).status == 200


# --- kubectl -----------------------------------------------------------------------------------


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_kubectl_can_do_its_usual_work(plane: cluster.ControlPlane, tmp_path: Path) -> None:
    async def kubectl(*arguments: str, stdin: str = "") -> str:
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(plane.kubeconfig)}
        done = await asyncio.to_thread(
            subprocess.run,
            ["kubectl", f"--cache-dir={tmp_path}/cache", *arguments],
            input=stdin.encode(),
            capture_output=True,
            env=environment,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr.decode()}"
        return done.stdout.decode()

    manifest = json.dumps(task("t") | {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Task"})
    assert "created" in await kubectl("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=manifest)
    changed = manifest.replace('"true"', '"false"')
    assert "configured" in await kubectl("apply", "-f", "-", stdin=changed)
    assert await kubectl("get", "ktask", "-o", "name") == "task.kilnwork.dev/t\n"
    assert "STATE" in await kubectl("get", "tasks")
    assert "labeled" in await kubectl("label", "task", "t", "a=b")
    assert "maxAttempts" in await kubectl("explain", "task.spec.retry")
    await kubectl("create", "configmap", "c", "--from-literal=x=y")
    assert await kubectl("get", "cm", "c", "-o", "jsonpath={.data.x}") == "y"
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    await kubectl("create", "sa", "bob")
    assert (await kubectl("create", "token", "bob")).count(".") == 2
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    await kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:bob")
    acting = "--as=system:serviceaccount:default:bob"
    assert await kubectl("auth", "can-i", "get", "pods", acting) == "yes\n"
    await kubectl("create", "namespace", "team")
    await kubectl("delete", "namespace", "team")
    assert "deleted" in await kubectl("delete", "task", "t")
