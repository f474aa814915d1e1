"""What a DELETE comes to: decided without a store, and carried out in one."""

import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, kinds, meta
from kilnwork.controlplane import errors, store, store_types
from kilnwork.controlplane.apiserver import authn, deletion, requests, statuses, write_types
from kilnwork.kit import asgi, clock
from support import served_kinds, store_world

NOW = 1_700_000_000.0
POD = write_types.target_of(api_resources.PODS, "default", "p")
TASK = write_types.WriteTarget(served_kinds.kind_of(kinds.TASKS), "default", "t")
NAMESPACE = write_types.target_of(api_resources.NAMESPACES, None, "n")
DEFINITION = write_types.target_of(api_resources.CUSTOM_RESOURCE_DEFINITIONS, None, "d")


def pod(*, phase: str = "Running", node: str = "n", **metadata: Any) -> meta.JsonObject:
    return {
        "metadata": {"name": "p", "uid": "u", **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


def decide(
    place: write_types.WriteTarget, obj: meta.JsonObject, **asked: Any
) -> deletion.DeletionDecision:
    return deletion.decide(place, obj, deletion.DeleteOptions(**asked), NOW)


@pytest.mark.parametrize(
    ("obj", "grace"),
    [
        (pod(node=""), None),
        (pod(phase="Succeeded"), None),
        (pod(phase="Failed"), 60),
        (pod(), 0),
    ],
)
def test_pod_without_running_containers_is_removed_at_once(
    obj: meta.JsonObject, grace: int | None
) -> None:
    assert decide(POD, obj, grace_s=grace).remove


def test_running_pod_gets_its_grace_period() -> None:
    verdict = decide(POD, pod())
    assert verdict.marked is not None
    found = verdict.marked["metadata"]
    assert found["deletionGracePeriodSeconds"] == 30
    assert found["deletionTimestamp"] == clock.rfc3339(NOW + 30)
    assert "finalizers" not in found
    assert not verdict.remove


def test_pod_that_is_removed_at_once_is_shown_without_grace() -> None:
    verdict = decide(POD, pod(generation=4), grace_s=0)
    assert verdict.marked is not None
    found = verdict.marked["metadata"]
    assert (found["generation"], found["deletionGracePeriodSeconds"]) == (5, 0)
    assert found["deletionTimestamp"] == clock.rfc3339(NOW)
    verdict = decide(POD, being_deleted(generation=5), grace_s=0)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["generation"] == 5
    assert verdict.marked["metadata"]["deletionTimestamp"] == clock.rfc3339(NOW - 10)


def test_generation_grows_with_the_first_delete_only() -> None:
    verdict = decide(POD, being_deleted(generation=5), grace_s=5)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["generation"] == 5


def test_delete_without_grace_of_a_pod_with_finalizers_changes_them() -> None:
    obj = being_deleted(finalizers=["x"]) | {"status": {"phase": "Running"}}
    obj["metadata"]["deletionGracePeriodSeconds"] = 0
    verdict = decide(POD, obj, grace_s=0, propagation="Foreground")
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["finalizers"] == ["x", "foregroundDeletion"]
    assert decide(POD, obj, grace_s=0) == deletion.DeletionDecision()


def namespace(*finalizers: str, **metadata: Any) -> meta.JsonObject:
    return {
        "metadata": {"name": "n", "uid": "u", **metadata},
        "spec": {"finalizers": list(finalizers)},
        "status": {"phase": "Active", "conditions": []},
    }


@pytest.mark.parametrize("finalizers", [("kubernetes",), ()])
def test_namespace_is_marked_first(finalizers: tuple[str, ...]) -> None:
    verdict = decide(NAMESPACE, namespace(*finalizers), grace_s=7)
    assert not verdict.remove
    assert verdict.marked is not None
    assert verdict.marked["status"] == {"phase": "Terminating", "conditions": []}
    assert verdict.marked["metadata"] == {
        "name": "n", "uid": "u", "deletionTimestamp": clock.rfc3339(NOW),
    }  # fmt: skip


def test_namespace_is_removed_when_its_own_finalizers_are_gone() -> None:
    deleted = clock.rfc3339(NOW - 5)
    held = namespace("kubernetes", deletionTimestamp=deleted)
    assert decide(NAMESPACE, held) == deletion.DeletionDecision()
    empty = namespace(deletionTimestamp=deleted)
    assert decide(NAMESPACE, empty) == deletion.DeletionDecision(remove=True)


def test_definition_is_marked_first_and_removed_later() -> None:
    definition = {"metadata": {"name": "d", "uid": "u"}, "spec": {}}
    verdict = decide(DEFINITION, definition)
    assert not verdict.remove
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionTimestamp"] == clock.rfc3339(NOW)
    cleaned = {"metadata": {"name": "d", "uid": "u", "deletionTimestamp": clock.rfc3339(NOW)}}
    assert decide(DEFINITION, cleaned) == deletion.DeletionDecision(remove=True)


def being_deleted(**more: Any) -> meta.JsonObject:
    """A Pod that was deleted 10 s ago with a grace period of 60 s; its own would be 30 s."""
    ends_at = clock.rfc3339(NOW + 50)
    return pod(deletionTimestamp=ends_at, deletionGracePeriodSeconds=60, **more)


@pytest.mark.parametrize("grace_s", [60, 90, None])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_second_delete_without_shorter_grace_changes_nothing(
    grace_s: int | None, phase: str
) -> None:
    for propagation in ("", "Foreground"):
        verdict = decide(POD, being_deleted(phase=phase), grace_s=grace_s, propagation=propagation)
        assert verdict == deletion.DeletionDecision()


def test_shorter_grace_period_counts_from_the_first_delete() -> None:
    verdict = decide(POD, being_deleted(), grace_s=5)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == 5
    assert verdict.marked["metadata"]["deletionTimestamp"] == clock.rfc3339(NOW - 5)
    assert decide(POD, being_deleted(), grace_s=0).remove


def test_negative_grace_period_is_one_second() -> None:
    asked = deletion.parse_options(
        {"gracePeriodSeconds": -5}, requests.Query({}), write_types.WriteContext()
    )
    assert asked.grace_s == 1
    hasty = pod()
    hasty["spec"]["terminationGracePeriodSeconds"] = -5
    verdict = decide(POD, hasty)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("propagation", "before", "after"),
    [
        ("Foreground", ["x"], ["x", "foregroundDeletion"]),
        ("Orphan", [], ["orphan"]),
        ("Orphan", ["foregroundDeletion"], ["orphan"]),
        ("", ["orphan"], ["orphan"]),
    ],
)
def test_propagation_becomes_a_finalizer(
    propagation: str, before: list[str], after: list[str]
) -> None:
    obj = {"metadata": {"name": "t", "uid": "u", "generation": 4, "finalizers": before}}
    verdict = decide(TASK, obj, propagation=propagation)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["finalizers"] == after
    assert verdict.marked["metadata"]["generation"] == 5


def test_background_propagation_removes_the_finalizer() -> None:
    obj = {"metadata": {"name": "t", "uid": "u", "finalizers": ["foregroundDeletion"]}}
    assert decide(TASK, obj, propagation="Background") == deletion.DeletionDecision(remove=True)


def test_delete_options_come_from_body_or_query() -> None:
    query = requests.Query({"gracePeriodSeconds": "7", "propagationPolicy": "Orphan"})
    found = deletion.parse_options({}, query, write_types.WriteContext())
    assert (found.grace_s, found.propagation) == (7, "Orphan")
    body = {"gracePeriodSeconds": 3, "orphanDependents": False, "dryRun": ["All"]}
    found = deletion.parse_options(body, requests.Query({}), write_types.WriteContext())
    assert (found.grace_s, found.propagation, found.options.dry_run) == (3, "Background", True)
    body = {"preconditions": {"uid": "u", "resourceVersion": "7"}, "orphanDependents": True}
    context = write_types.WriteContext(manager="m")
    found = deletion.parse_options(body, requests.Query({}), context)
    assert (found.uid, found.resource_version, found.grace_s) == ("u", "7", None)
    assert (found.propagation, found.options) == ("Orphan", context)
    found = deletion.parse_options({}, requests.Query({"orphanDependents": "false"}), context)
    assert (found.propagation, found.uid, found.resource_version) == ("Background", "", "")
    found = deletion.parse_options({}, requests.Query({}), context)
    assert found == deletion.DeleteOptions(options=context)
    with pytest.raises(statuses.StatusError, match="propagationPolicy"):
        deletion.parse_options(
            {"propagationPolicy": "Perhaps"}, requests.Query({}), write_types.WriteContext()
        )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        ({"dryRun": ["All", "Some"]}, 'supported values: "All"'),
        ({"dryRun": ["Some"]}, 'supported values: "All"'),
    ],
)
def test_invalid_delete_option_is_refused(document: meta.JsonObject, words: str) -> None:
    with pytest.raises(statuses.StatusError, match=words) as caught:
        deletion.parse_options(document, requests.Query({}), write_types.WriteContext())
    assert caught.value.code == 422


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Status"},
        {"gracePeriodSeconds": "3"},
        {"gracePeriodSeconds": True},
        {"preconditions": "uid"},
        {"preconditions": {"uid": ["u"]}},
        {"preconditions": {"resourceVersion": 7}},
        {"orphanDependents": "no"},
        {"dryRun": True},
    ],
)
def test_unreadable_precondition_is_an_error(document: meta.JsonObject) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        deletion.parse_options(document, requests.Query({}), write_types.WriteContext())
    assert caught.value.code == 500


@pytest.mark.parametrize("seconds", [10**12, 10**18])
def test_huge_grace_period_is_capped(seconds: int) -> None:
    asked = deletion.parse_options(
        {"gracePeriodSeconds": seconds}, requests.Query({}), write_types.WriteContext()
    )
    verdict = deletion.decide(POD, pod(), asked, NOW)
    assert verdict.marked is not None
    assert verdict.marked["metadata"]["deletionGracePeriodSeconds"] == 1_000_000_000
    patient = pod()
    patient["spec"]["terminationGracePeriodSeconds"] = seconds
    assert decide(POD, patient).marked is not None


# The body of a request


def delete_request(body: bytes, query: str = "") -> requests.ApiRequest:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http", "method": "DELETE", "path": "/api/v1/namespaces/default/pods/p",
        "query_string": query.encode(), "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip
    return requests.parse(
        asgi.Request(scope, receive), user=authn.ADMIN, find=lambda *_: api_resources.PODS
    )


async def test_options_are_read_from_the_body_of_a_request() -> None:
    context = write_types.WriteContext()
    request = delete_request(b'{"gracePeriodSeconds": 3}', "gracePeriodSeconds=5")
    assert (await deletion.read_options(request, context)).grace_s == 3
    request = delete_request(b"", "gracePeriodSeconds=5")
    assert (await deletion.read_options(request, context)).grace_s == 5


async def test_unreadable_body_is_an_internal_error_as_in_the_real_server() -> None:
    with pytest.raises(statuses.StatusError) as caught:
        await deletion.read_options(delete_request(b"{"), write_types.WriteContext())
    assert caught.value.code == 500


# Deletions in a store


CM = api_resources.CONFIG_MAPS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        yield found


async def refusal(world: store_world.World, name: str, **asked: Any) -> statuses.StatusError:
    with pytest.raises(statuses.StatusError) as caught:
        await world.delete(CM, name, **asked)
    return caught.value


async def test_deleted_object_is_gone_and_returned(world: store_world.World) -> None:
    await world.create(CM, "c", data={"a": "b"})
    found = await world.delete(CM, "c")
    assert (found.gone, msgspec.json.decode(found.raw)["data"]) == (True, {"a": "b"})
    assert world.get(CM, "c") is None
    error = await refusal(world, "c")
    assert (error.code, error.message) == (404, 'configmaps "c" not found')


async def test_object_with_finalizers_is_marked_once(world: store_world.World) -> None:
    await world.create(CM, "c", metadata={"finalizers": ["a/b"]})
    first = await world.delete(CM, "c")
    stored = world.get(CM, "c")
    assert stored is not None
    assert (first.gone, msgspec.json.decode(first.raw)) == (False, stored)
    assert "deletionTimestamp" in stored["metadata"]
    again = await world.delete(CM, "c")
    assert (again.gone, msgspec.json.decode(again.raw)) == (False, stored)
    assert world.get(CM, "c") == stored


@pytest.mark.parametrize(
    ("metadata", "gone"), [({}, True), ({"finalizers": ["a/b"]}, False)], ids=["plain", "held"]
)
async def test_dry_run_changes_nothing(
    world: store_world.World, metadata: dict[str, Any], *, gone: bool
) -> None:
    before = await world.create(CM, "c", metadata=metadata)
    options = write_types.WriteContext(dry_run=True)
    found = await world.delete(CM, "c", options=options)
    assert found.gone == gone
    shown = msgspec.json.decode(found.raw)["metadata"]
    assert ("deletionTimestamp" in shown) == (not gone)
    assert world.get(CM, "c") == before


async def test_preconditions_protect_another_object(world: store_world.World) -> None:
    stored = (await world.create(CM, "c"))["metadata"]
    error = await refusal(world, "c", uid="another")
    assert error.code == 409
    assert f"(another) does not match the UID in record ({stored['uid']})" in error.message
    error = await refusal(world, "c", resource_version="1")
    assert error.code == 409
    assert f"(1) does not match the ResourceVersion in record ({stored['resourceVersion']})" in (
        error.message
    )
    assert world.get(CM, "c") is not None
    version = stored["resourceVersion"]
    assert (await world.delete(CM, "c", uid=stored["uid"], resource_version=version)).gone


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_namespaces_of_the_server_are_kept(world: store_world.World, name: str) -> None:
    with pytest.raises(statuses.StatusError, match="this namespace may not be deleted") as caught:
        await world.delete(api_resources.NAMESPACES, name)
    assert caught.value.code == 403
    await world.create(CM, name)  # of another kind
    assert (await world.delete(CM, name)).gone


class ChangingStore:
    """A store in which the object was changed in between, at its next `changes` removals."""

    def __init__(self, held: store.Store, changes: int) -> None:
        self._held = held
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)

    async def remove(self, key: store_types.Key, *, expected: int) -> store_types.StoreChange:
        if self.changes:
            self.changes -= 1
            raise errors.Superseded
        return await self._held.remove(key, expected=expected)


@pytest.mark.parametrize(("changes", "removed"), [(9, True), (10, False)])
async def test_deletion_is_tried_ten_times(
    world: store_world.World, changes: int, *, removed: bool
) -> None:
    await world.create(CM, "c")
    busy = ChangingStore(world.store, changes)
    deleter = deletion.Deleter(types.SimpleNamespace(store=busy, clock=world.clock))  # type: ignore[arg-type]
    target = write_types.target_of(CM, "default", "c")
    if removed:
        assert (await deleter.delete(target, deletion.DeleteOptions())).gone
    else:
        with pytest.raises(statuses.StatusError) as caught:
            await deleter.delete(target, deletion.DeleteOptions())
        assert caught.value.code == 409
    assert (world.get(CM, "c") is None) == removed
    assert busy.changes == 0


async def test_collection_is_deleted_with_the_previous_state_of_each(
    world: store_world.World,
) -> None:
    before = [
        await world.create(CM, "a"),
        await world.create(CM, "c", metadata={"finalizers": ["a/b"]}),
    ]
    targets = [write_types.target_of(CM, "default", name) for name in "abc"]
    found = await world.deleter.delete_all(targets, deletion.DeleteOptions())
    assert [msgspec.json.decode(one.raw) for one in found] == before
    assert [one.gone for one in found] == [True, False]
    assert world.get(CM, "a") is None
    with pytest.raises(statuses.StatusError) as caught:
        await world.deleter.delete_all(targets, deletion.DeleteOptions(uid="another"))
    assert caught.value.code == 409
