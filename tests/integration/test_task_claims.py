"""TaskClaims against the real API server, dispatcher and journal: what a program with curl does.

Admission rules are tested here as the embedded API server has them; tests/cluster tests those of a
real one.
"""

import base64
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controllers.task_claim import executor_adapter
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.kit import coroutines, ids
from kilnwork.kube import client, errors
from support import controller_world, pod_world, short_paths, waiting
from support import hubs as hub_support

NS = pod_world.NS
CLAIMS = kinds.TASK_CLAIMS
REFUSAL = "cannot use resource .*executors/external"
LARGE = "x" * 100_000


class World(pod_world.World):
    """A manager that serves claims, and the actions of holders."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.settings = msgspec.structs.replace(
            controller_world.SETTINGS, socket=directory / "c.sock", blobs=directory / "blobs"
        )
        self.options = hubs.HubOptions(lease_s=20.0)  # long enough for a busy machine

    async def external(self, name: str, payload: Any = None, **spec: Any) -> None:
        """Declare a Task for executor `mine`."""
        spec = {"external": {"executor": "mine", "payload": payload}, **spec}
        await self.kube.create(kinds.TASKS, controller_world.body(kinds.TASKS, name, spec=spec), NS)

    async def task_id(self, name: str) -> ids.TaskId:
        return ids.task_id((await self.kube.get(kinds.TASKS, name, NS))["metadata"]["uid"])

    async def claim(self, name: str = "c", **spec: Any) -> None:
        body = controller_world.body(CLAIMS, name, spec={"executor": "mine", **spec})
        await self.kube.create(CLAIMS, body, NS)

    async def report(self, name: str = "c", **status: Any) -> None:
        """Write a report as the holder does."""
        await self.kube.merge_patch(CLAIMS, name, {"status": status}, NS, subresource="status")

    async def phase(self, phase: str, name: str = "c") -> dict[str, Any]:
        """Wait until a claim is in this phase; return its status."""
        status: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal status
            status = (await self.kube.get(CLAIMS, name, NS)).get("status") or {}
            return status.get("phase") == phase

        await waiting.wait_until_async(look, what=f"claim {name} is {phase}")
        return status


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(short_paths.directory())
    await made.plane.start()
    try:
        async with client.Client(made.plane.admin_config(), user_agent="test") as made.kube:
            await made.start()
            yield made
            await made.end()
    finally:
        await made.plane.stop()


async def test_task_with_a_result_costs_three_status_writes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        executor_adapter, "WAITING_AFTER_S", 30.0
    )  # else a fourth on a busy machine
    writes, following = (
        controller_world.Writes(world.kube, CLAIMS),
        coroutines.BackgroundWork("test"),
    )
    following.start("writes", writes.follow())
    await world.external("a", {"of": "${task.name}"})
    await world.wait_for_state("a", "Pending", "ExecutorUnavailable")
    await world.claim(holder="curl")
    given = (await world.phase("Claimed"))["task"]
    uid = (await world.kube.get(kinds.TASKS, "a", NS))["metadata"]["uid"]
    assert given == {
        "name": "a",
        "id": uid,
        "run": 1,
        "attempt": 1,
        "payload": {"of": "a"},
        "outputType": "json",
    }
    await world.wait_for_state("a", "Running")
    await world.report(outcome={"state": "Succeeded", "result": {"n": 1}})
    done = await world.wait_for_state("a", "Success", "Succeeded")
    assert done["result"]["value"] == {"n": 1}
    assert (await world.phase("Finished"))["reason"] == "Succeeded"
    assert (await writes.counted())["c"] == 3
    await following.stop()


async def test_progress_is_shown(world: World) -> None:
    await world.external("a")
    await world.claim()
    await world.phase("Claimed")
    task = await world.task_id("a")
    for fraction in (0.25, 0.5):
        await world.report(progress={"fraction": fraction, "message": "at work"})

        def shown(fraction: float = fraction) -> bool:
            return hub_support.view(world.hub, task).progress == model.Progress(fraction, "at work")

        await waiting.wait_until_async(shown, what="the progress is shown")


@pytest.mark.parametrize(
    ("spec", "outcome", "state", "reason"),
    [
        ({}, {"state": "Failed", "reason": "NoPaper", "message": "m"}, "Failed", "NoPaper"),
        ({}, {"state": "Failed"}, "Failed", "Raised"),
        ({}, {"state": "Succeeded", "result": LARGE}, "Success", "Succeeded"),
        ({"outputType": "bytes"}, {"state": "Succeeded", "result": "AP8="}, "Success", "Succeeded"),
        (
            {"outputType": "bytes"},
            {"state": "Succeeded", "result": "no"},
            "Failed",
            "InvalidResult",
        ),
    ],
)
async def test_reported_outcome_decides_the_state(
    world: World, spec: dict[str, Any], outcome: dict[str, Any], *, state: str, reason: str
) -> None:
    await world.external("a", **spec)
    await world.claim()
    await world.phase("Claimed")
    await world.report(outcome=outcome)
    await world.wait_for_state("a", state, reason)
    view = hub_support.view(world.hub, await world.task_id("a"))
    result = outcome.get("result")
    if state == "Failed":
        assert view.result is None
    elif result == LARGE:
        assert view.result is not None
        assert view.result.size == len(LARGE) + 2
        [stored] = [path for path in (world.directory / "blobs").rglob("*") if path.is_file()]
        assert stored.read_bytes() == msgspec.json.encode(LARGE)
    else:
        assert view.result is not None
        assert view.result.data == base64.b64decode(outcome["result"])


@pytest.mark.parametrize("deleted", [False, True], ids=["acknowledged", "deleted"])
async def test_kill_is_requested_from_the_holder_and_confirmed_by_its_outcome(
    world: World, *, deleted: bool
) -> None:
    await world.external("a", timeouts={"killGraceSeconds": 0.1})
    await world.claim()
    await world.phase("Claimed")
    with pytest.raises(errors.Invalid, match=r"is Killed only where status\.phase is Killing"):
        await world.report(outcome={"state": "Killed"})
    await world.kube.merge_patch(
        kinds.TASKS, "a", {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}, NS
    )
    status = await world.phase("Killing")
    assert status["killReason"] == "Killed"
    if deleted:
        await world.kube.delete(CLAIMS, "c", NS)
        await world.wait_for_state("a", "Killed", "Unconfirmed")
    else:
        await world.report(outcome={"state": "Killed"})
        await world.wait_for_state("a", "Killed", "Killed")
        await world.phase("Finished")


async def test_deleted_task_ends_its_claim(world: World) -> None:
    """The holder stops its work; the claim belongs to it and is removed after its `ttl`."""
    await world.external("a")
    await world.claim(ttlSecondsAfterFinished=0)
    await world.phase("Claimed")
    task = await world.task_id("a")
    await world.kube.delete(kinds.TASKS, "a", NS)
    await world.phase("Killing")
    await world.report(outcome={"state": "Killed"})

    async def gone() -> bool:
        claims = (await world.kube.list(CLAIMS, NS, type=dict)).items
        return not claims and not (await world.kube.list(kinds.TASKS, NS, type=dict)).items

    await waiting.wait_until_async(gone, what="task and claim are gone")
    view = hub_support.view(world.hub, task)
    assert (view.state, view.stopped) == ("Killed", True)


@pytest.mark.parametrize("deleted", [False, True], ids=["not renewed", "deleted"])
async def test_task_of_a_lost_holder_goes_to_another_claim(world: World, *, deleted: bool) -> None:
    await world.external("a")
    await world.claim(leaseSeconds=60 if deleted else 3)
    if deleted:
        await world.phase("Claimed")
        await world.kube.delete(CLAIMS, "c", NS)
    else:
        status = await world.phase("Finished")
        assert (status["task"]["attempt"], status["reason"]) == (1, "WorkerLost")
        assert "not renewed for 3 s" in status["message"]
        with pytest.raises(errors.Invalid, match="the claim has no task: its phase is Finished"):
            await world.report(outcome={"state": "Succeeded", "result": "too late"})
    await world.claim("d")
    status = await world.phase("Claimed", "d")
    assert status["task"]["attempt"] == 2
    await world.report("d", outcome={"state": "Succeeded", "result": 2})
    assert (await world.wait_for_state("a", "Success"))["result"]["value"] == 2


async def test_unrenewed_waiting_claim_gets_no_task(world: World) -> None:
    await world.claim(leaseSeconds=1, ttlSecondsAfterFinished=0)

    async def gone() -> bool:
        with contextlib.suppress(errors.NotFound):
            await world.kube.get(CLAIMS, "c", NS)
            return False
        return True

    await waiting.wait_until_async(gone, what="the claim is deleted")
    await world.external("a")
    await world.wait_for_state("a", "Pending", "ExecutorUnavailable")


@pytest.mark.parametrize("meanwhile", [False, True], ids=["afterwards", "meanwhile"])
async def test_claim_goes_on_after_a_restart_of_the_manager(
    world: World, *, meanwhile: bool
) -> None:
    await world.external("a", {"literal": "$${not.a.variable}"})
    await world.claim()
    given = (await world.phase("Claimed"))["task"]
    await world.wait_for_state("a", "Running")
    await world.end()
    if meanwhile:
        await world.report(outcome={"state": "Succeeded", "result": 1})
    await world.start()
    if not meanwhile:
        await world.wait_for_state("a", "Running")
        await world.report(outcome={"state": "Succeeded", "result": 1})
    status = await world.wait_for_state("a", "Success")
    assert (status["result"]["value"], status["attempts"]) == (1, 1)
    assert (await world.phase("Finished"))["task"] == given


@pytest.mark.parametrize("forged", [{"id": "none"}, {"attempt": 2**60}])
async def test_claim_with_a_changed_task_ends_alone(world: World, forged: dict[str, Any]) -> None:
    await world.external("a")
    await world.claim()
    await world.phase("Claimed")
    await world.wait_for_state("a", "Running")
    await world.end()
    await world.report(task=forged)
    await world.start()
    assert (await world.phase("Finished"))["reason"] == "WorkerLost"
    await world.claim("d")
    await world.phase("Waiting", "d")


async def test_outcomes_are_written_once_and_specs_not_changed(world: World) -> None:
    await world.claim()
    await world.phase("Waiting")
    with pytest.raises(errors.Invalid, match="the claim has no task: its phase is Waiting"):
        await world.report(outcome={"state": "Succeeded"})
    with pytest.raises(errors.Invalid, match="cannot be changed: make another claim"):
        await world.kube.merge_patch(CLAIMS, "c", {"spec": {"executor": "other"}}, NS)
    await world.external("a")
    await world.phase("Claimed")
    with pytest.raises(errors.Invalid, match=r"outcome\.reason.*is WorkerLost, which the manager"):
        await world.report(outcome={"state": "Failed", "reason": "WorkerLost"})
    await world.report(outcome={"state": "Succeeded"})
    with pytest.raises(errors.Invalid, match=r"status\.outcome.*cannot be changed"):
        await world.report(outcome={"state": "Failed"})


async def test_claims_need_the_right_to_use_the_executor(world: World) -> None:
    await world.claim("theirs", executor="other")
    token = await holder_token(world.kube, "mine")
    holder = dataclasses.replace(world.plane.admin_config(), token=token)
    status = {"status": {"renewTime": "2026-01-01T00:00:00Z"}}
    async with client.Client(holder, user_agent="holder") as kube:
        await kube.create(
            CLAIMS, controller_world.body(CLAIMS, "mine", spec={"executor": "mine"}), NS
        )
        await kube.merge_patch(CLAIMS, "mine", status, NS, subresource="status")
        body = controller_world.body(CLAIMS, "more", spec={"executor": "other"})
        with pytest.raises(errors.Forbidden, match=REFUSAL):
            await kube.create(CLAIMS, body, NS)
        with pytest.raises(errors.Forbidden, match=REFUSAL):
            await kube.merge_patch(CLAIMS, "theirs", status, NS, subresource="status")


async def test_claims_can_be_deleted_without_the_right_to_use_the_executor(world: World) -> None:
    """Admission rules for claims do not block deletions or kills."""
    await world.external("a")
    await world.claim("theirs")
    await world.phase("Claimed", "theirs")
    token = await holder_token(world.kube, "other")
    holder = dataclasses.replace(world.plane.admin_config(), token=token)
    async with client.Client(holder, user_agent="holder") as kube:
        status = {"status": {"renewTime": "2026-01-01T00:00:00Z"}}
        with pytest.raises(errors.Forbidden, match=REFUSAL):
            await kube.merge_patch(CLAIMS, "theirs", status, NS, subresource="status")
        await kube.delete(CLAIMS, "theirs", NS)
    assert (await world.kube.list(CLAIMS, NS, type=dict)).items == []
    kill = {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}
    await world.kube.merge_patch(kinds.TASKS, "a", kill, NS)
    await world.wait_for_state("a", "Killed")


async def holder_token(kube: client.Client, executor: str) -> str:
    """Return the token of an account with the rights that the how-to grants."""
    group = kinds.GROUP
    rules = [
        {"apiGroups": [group], "resources": ["executors/external"], "verbs": ["use"],
         "resourceNames": [executor]},
        {"apiGroups": [group], "resources": ["taskclaims"],
         "verbs": ["create", "get", "watch", "delete"]},
        {"apiGroups": [group], "resources": ["taskclaims/status"], "verbs": ["patch"]},
    ]  # fmt: skip
    named = {"metadata": {"name": "holder", "namespace": NS}}
    await kube.create(api_resources.SERVICE_ACCOUNTS, named)
    await kube.create(api_resources.ROLES, {**named, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "holder"}
    subjects = [{"kind": "ServiceAccount", "name": "holder", "namespace": NS}]
    await kube.create(
        api_resources.ROLE_BINDINGS, {**named, "roleRef": reference, "subjects": subjects}
    )
    asked = {"kind": "TokenRequest", "spec": {}}
    made = await kube.create_sub(api_resources.SERVICE_ACCOUNTS, "holder", "token", asked, NS)
    return str(made["status"]["token"])
