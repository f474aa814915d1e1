"""The Task controller on the real API server, with a fake dispatcher."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork import controllers
from kilnwork.api import api_resources, attempts, kinds, task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import clock, coroutines, ids
from kilnwork.kube import client, errors
from support import controller_world, embedded_server, empty_job_hub, verifiers, waiting


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[controller_world.World]:
    async with controller_world.running(tmp_path) as made:
        yield made


async def test_task_is_submitted_with_its_inputs(world: controller_world.World) -> None:
    await world.cluster()
    await world.data("start", {"count": "0"})
    await world.task("a", inputObject="start")
    await world.submitted("a")
    assert world.hub.submitted[0].inputs == b'{"input":{"count":"0"}}'


async def test_short_task_costs_one_status_write(world: controller_world.World) -> None:
    await world.submit_one("a")
    world.hub.run("a")
    world.hub.succeed("a")
    status = await world.wait_for_state("a", "Success", "Succeeded")
    await asyncio.sleep(controller_world.QUIET_S)
    assert (await world.tasks.counted())["a"] == 1
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Started": "True",
        "Finished": "True",
    }


async def test_task_that_takes_longer_costs_two_status_writes(
    world: controller_world.World,
) -> None:
    await world.submit_one("a")
    world.hub.run("a")
    status = await world.wait_for_state("a", "Running", "Started")
    assert status["podName"] == "w-0"
    world.hub.succeed("a")
    await world.wait_for_state("a", "Success", "Succeeded")
    await asyncio.sleep(controller_world.QUIET_S)
    assert (await world.tasks.counted())["a"] == 2


async def test_reconciling_again_writes_nothing(world: controller_world.World) -> None:
    await world.cluster(replicas=2)
    await world.wait_for_pods("default-0", "default-1")
    for name in ("a", "b", "c"):
        await world.task(name)
        await world.submitted(name)
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"x":null}'))
    world.hub.run("b")
    await world.wait_for_state("a", "Success", "Succeeded")
    await world.wait_for_state("b", "Running", "Started")
    await world.wait_for_state("c", "Pending", "NoWorker")
    await asyncio.sleep(controller_world.QUIET_S)
    before = await world.tasks.counted() | await world.clusters.counted()
    pods = {n: p["metadata"]["resourceVersion"] for n, p in (await world.pods()).items()}
    await world.restart()
    await asyncio.sleep(1.0)
    assert await world.tasks.counted() | await world.clusters.counted() == before
    assert sum(before.values()) >= 4
    assert {n: p["metadata"]["resourceVersion"] for n, p in (await world.pods()).items()} == pods


async def test_status_overwritten_by_another_client_is_restored(
    world: controller_world.World,
) -> None:
    await world.submit_one("a")
    world.hub.run("a")
    world.hub.succeed("a")
    await world.wait_for_state("a", "Success", "Succeeded")
    patch = {"status": {"state": "Running", "reason": "Wrong"}}
    await world.kube.merge_patch(kinds.TASKS, "a", patch, controller_world.NS, subresource="status")
    await world.wait_for_state("a", "Success", "Succeeded")


async def test_result_keeps_its_nulls_in_the_status(world: controller_world.World) -> None:
    await world.submit_one("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"x":null,"y":[1]}'))
    status = await world.wait_for_state("a", "Success", "Succeeded")
    assert status["result"]["value"] == {"x": None, "y": [1]}


async def test_missing_cluster_is_reported_and_its_creation_starts_the_task(
    world: controller_world.World,
) -> None:
    await world.task("a", clusterName="counter")
    status = await world.wait_for_state("a", "Pending", "WaitingForCluster", within_s=1.0)
    assert "TaskCluster counter" in status["message"]
    await world.cluster("counter")
    await world.submitted("a", within_s=1.0)


async def test_missing_object_is_reported_and_its_creation_starts_the_task(
    world: controller_world.World,
) -> None:
    await world.cluster()
    await world.task("a", inputObject="start")
    status = await world.wait_for_state("a", "Pending", "WaitingForObject", within_s=1.0)
    assert "TaskObject start" in status["message"]
    await world.data("start", 1)
    await world.submitted("a", within_s=1.0)


async def test_task_waits_for_the_result_of_another(world: controller_world.World) -> None:
    await world.cluster()
    inputs = [{"name": "x", "task": "first", "path": "$.value"}]
    await world.task("second", inputs=inputs)
    await world.wait_for_state("second", "Pending", "WaitingForTask", within_s=1.0)
    await world.task("first")
    await world.submitted("first")
    world.hub.succeed("first", result=attempts.Payload("application/json", b'{"value":7}'))
    await world.submitted("second", within_s=1.0)
    assert world.hub.submitted[-1].inputs == b'{"x":7}'


async def test_failed_input_fails_its_dependents(world: controller_world.World) -> None:
    await world.cluster()
    await world.task("first")
    await world.task("second", inputs=[{"name": "x", "task": "first"}])
    await world.submitted("first")
    world.hub.move("first", "Failed", reason="NonZeroExit", message="exit code 3", exit_code=3)
    status = await world.wait_for_state("second", "Failed", "InputFailed")
    assert "exit code 3" in status["message"]
    await waiting.wait_until_async(lambda: world.kube_events("NonZeroExit"), what="kube event")


async def test_missing_account_is_reported_and_its_creation_makes_workers(
    world: controller_world.World,
) -> None:
    await world.cluster(serviceAccountName="counter")
    await world.task("a")
    status = await world.wait_for_state("a", "Pending", "WaitingForServiceAccount", within_s=1.0)
    assert "ServiceAccount counter" in status["message"]
    account = controller_world.body(api_resources.SERVICE_ACCOUNTS, "counter")
    await world.kube.create(api_resources.SERVICE_ACCOUNTS, account, controller_world.NS)
    pods = await world.wait_for_pods("default-0")
    assert pods["default-0"]["spec"]["serviceAccountName"] == "counter"


async def test_longest_task_name_runs(world: controller_world.World) -> None:
    await world.submit_one(controller_world.LONG)
    world.hub.move(controller_world.LONG, "Failed", reason="NonZeroExit", message="x", exit_code=1)
    await world.wait_for_state(controller_world.LONG, "Failed", "NonZeroExit")
    await waiting.wait_until_async(lambda: world.kube_events("NonZeroExit"), what="kube event")


async def test_kill_timestamp_kills(world: controller_world.World) -> None:
    await world.submit_one("a")
    world.hub.run("a")
    now = clock.SystemClock().wall()
    await world.spec("a", killTimestamp=clock.rfc3339(now))
    status = await world.wait_for_state("a", "Killed", "Killed")
    assert {"type": "Stopped", "status": "True"}.items() <= status["conditions"][2].items()


async def test_future_kill_timestamp_kills_without_other_changes(
    world: controller_world.World,
) -> None:
    await world.submit_one("a")
    world.hub.run("a")
    await world.wait_for_state("a", "Running", "Started")
    due = int(clock.SystemClock().wall()) + 2
    await world.spec("a", killTimestamp=clock.rfc3339(due))
    await waiting.wait_until_async(lambda: world.hub.killed, what="it is killed")
    assert clock.SystemClock().wall() >= due
    assert world.hub.killed == [("a", "Killed")]


async def test_kill_timestamp_before_submission_needs_no_dispatcher(
    world: controller_world.World,
) -> None:
    await world.task("a", clusterName="none", killTimestamp="2026-01-01T00:00:00Z")
    await world.wait_for_state("a", "Killed", "Killed")
    assert world.hub.names() == []


async def test_suspended_task_starts_when_resumed(world: controller_world.World) -> None:
    await world.cluster()
    await world.task("a", suspend=True)
    await world.wait_for_state("a", "Pending", "Suspended", within_s=1.0)
    assert world.hub.names() == []
    await world.spec("a", suspend=False)
    await world.submitted("a", within_s=1.0)


async def test_suspension_reaches_a_submitted_task(
    world: controller_world.World,
) -> None:
    await world.submit_one("a")
    view = next(iter(world.hub.views.values()))
    await world.spec("a", suspend=True)
    await waiting.wait_until_async(lambda: world.hub.views[view.task].suspended, what="it is held")
    await _suspended(world, "True")
    await world.spec("a", suspend=False)
    await waiting.wait_until_async(lambda: not world.hub.views[view.task].suspended, what="it goes")
    await _suspended(world, "False")


async def _suspended(world: controller_world.World, value: str) -> None:
    """Wait until the condition `Suspended` of Task `a` has that status."""
    async with asyncio.timeout(5):
        while True:
            conditions = (await world.status("a")).get("conditions", ())
            if {c["status"] for c in conditions if c["type"] == "Suspended"} == {value}:
                return
            await asyncio.sleep(0.01)


async def test_deleted_object_kills_its_task(world: controller_world.World) -> None:
    await world.submit_one("a")
    await world.kube.delete(kinds.TASKS, "a", controller_world.NS)
    await waiting.wait_until_async(lambda: world.hub.killed == [("a", "Deleted")], what="kill")
    uid = next(iter(world.hub.views))
    await waiting.wait_until_async(lambda: world.hub.released == [uid], what="it is released")


async def test_object_deleted_while_the_manager_was_away_kills_its_task(
    world: controller_world.World,
) -> None:
    await world.cluster()
    await world.task("a")
    await world.task("b")
    await world.submitted("b")
    await world.submitted("a")
    await world.controllers.stop()
    await world.kube.delete(kinds.TASKS, "a", controller_world.NS)
    await world.task("c")
    await world.restart()
    await waiting.wait_until_async(lambda: world.hub.killed == [("a", "Deleted")], what="kill")
    await world.submitted("c")


async def test_recreated_object_is_another_task(world: controller_world.World) -> None:
    await world.cluster()
    first = await world.task("a")
    await world.submitted("a")
    await world.kube.delete(kinds.TASKS, "a", controller_world.NS)
    second = await world.task("a")
    await world.submitted("a", times=2)
    assert first != second
    await waiting.wait_until_async(lambda: world.hub.killed == [("a", "Deleted")], what="kill")
    world.hub.succeed("a")
    await world.wait_for_state("a", "Success", "Succeeded")


async def test_end_during_an_absence_of_the_manager_is_reported(
    world: controller_world.World,
) -> None:
    await world.submit_one("a")
    await world.controllers.stop()
    world.hub.succeed("a")
    await world.restart()
    reported = await world.wait_for_state("a", "Success", "Succeeded")
    assert ("Finished", "True") in {(c["type"], c["status"]) for c in reported["conditions"]}


async def test_failed_task_runs_again_when_run_rises(world: controller_world.World) -> None:
    await world.submit_one("a")
    world.hub.move("a", "Failed", reason="NonZeroExit", message="exit code 1", exit_code=1)
    await world.wait_for_state("a", "Failed", "NonZeroExit")
    await world.spec("a", run=2)
    await world.submitted("a", times=2)
    world.hub.run("a")
    status = await world.wait_for_state("a", "Running", "Started")
    assert status["run"] == 2


async def test_succeeded_task_runs_again_only_by_force(world: controller_world.World) -> None:
    await world.submit_one("a")
    world.hub.succeed("a")
    await world.wait_for_state("a", "Success", "Succeeded")
    await world.spec("a", run=2)
    await waiting.wait_until_async(lambda: world.kube_events("RunRefused"), what="kube event")
    patch = {"metadata": {"annotations": {task.FORCE_ANNOTATION: "2"}}}
    await world.kube.merge_patch(kinds.TASKS, "a", patch, controller_world.NS)
    await waiting.wait_until_async(
        lambda: any(v.run == 2 for v in world.hub.views.values()), what="second run"
    )


async def test_result_is_written_to_the_output_object(world: controller_world.World) -> None:
    await world.cluster()
    await world.task("a", outputObject="out")
    await world.submitted("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"n":1}'))
    status = await world.wait_for_state("a", "Success", "Succeeded")
    assert status["outputObject"] == "out"
    made = await world.kube.get(kinds.TASK_OBJECTS, "out", controller_world.NS)
    assert made["data"] == {"n": 1}


async def test_foreign_output_object_is_unchanged(world: controller_world.World) -> None:
    await world.cluster()
    await world.data("out", "mine")
    await world.task("a", outputObject="out")
    await world.submitted("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b"1"))
    status = await world.wait_for_state("a", "Success", "Succeeded")
    assert "outputObject" not in status
    assert (await world.kube.get(kinds.TASK_OBJECTS, "out", controller_world.NS))["data"] == "mine"
    await waiting.wait_until_async(
        lambda: world.kube_events("OutputObjectNotMade"), what="kube event"
    )


async def test_finished_task_is_deleted_after_its_time(world: controller_world.World) -> None:
    await world.cluster()
    await world.task("a", ttlSecondsAfterFinished=1)
    await world.submitted("a")
    world.hub.succeed("a")

    async def gone() -> bool:
        try:
            await world.status("a")
        except errors.NotFound:
            return True
        return False

    await waiting.wait_until_async(gone, what="deleted", timeout_s=4.0)


async def test_many_tasks_are_submitted_at_once(world: controller_world.World) -> None:
    await world.cluster()
    await asyncio.gather(*(world.task(f"t-{n}") for n in range(100)))
    await waiting.wait_until_async(lambda: len(world.hub.views) == 100, what="all submitted")


# With the real dispatcher


async def test_journal_and_objects_agree_after_a_restart(tmp_path: Path) -> None:
    async with embedded_server.admin_client(tmp_path) as kube:
        world = controller_world.World(kube)
        await world.cluster(replicas=0)
        for name in ("stays", "goes"):
            await world.task(name)
        async with _dispatcher(kube, tmp_path):
            status = await world.wait_for_state("goes", "Pending", "NoWorker")
            assert status["message"] == "TaskCluster default: spec.replicas is 0"
            await world.wait_for_state("stays", "Pending", "NoWorker")
        await kube.delete(kinds.TASKS, "goes", controller_world.NS)
        async with _dispatcher(kube, tmp_path) as hub:
            await waiting.wait_until_async(
                lambda: {str(v.state) for v in hub.declared("goes")} == {"Killed"}, what="killed"
            )
            assert [str(v.state) for v in hub.declared("stays")] == ["Pending"]
            await kube.delete(kinds.TASK_CLUSTERS, "default", controller_world.NS)
            await world.wait_for_state("stays", "Failed", "ClusterDeleted")


class _Dispatcher:
    """The real hub, with look-ups by name."""

    def __init__(self, hub: hubs.Hub) -> None:
        self._hub = hub
        self._views: dict[ids.TaskId, model.TaskView] = {}

    async def follow(self) -> None:
        since = 0
        while True:
            since, views = await self._hub.changes(since)
            self._views.update({v.task: v for v in views})

    def declared(self, name: str) -> list[model.TaskView]:
        return [v for v in self._views.values() if v.name == name]


@contextlib.asynccontextmanager
async def _dispatcher(kube: client.Client, directory: Path) -> AsyncIterator[_Dispatcher]:
    made = controllers.Controllers(kube, controller_world.SETTINGS, time=clock.SystemClock())
    hub = hubs.Hub(
        journal.Journal(directory / "journal.db"),
        clock=clock.SystemClock(),
        verifier=verifiers.NoDrivers(made.verifier),
        logs_dir=directory / "logs",
        entropy=ids.system_entropy(),
    )
    await hub.start(directory / "channel.sock")
    watcher, background = _Dispatcher(hub), coroutines.BackgroundWork("test")
    await made.start(hub, empty_job_hub.engine())
    background.start("follow", watcher.follow())
    try:
        yield watcher
    finally:
        await background.stop()
        await made.stop()
        await hub.stop()
