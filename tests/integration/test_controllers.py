"""The controllers on the real API server, with a dispatcher that does what the test says."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kilnwork import controllers
from kilnwork.api import attempts, meta, resource
from kilnwork.controllers.task import plan
from kilnwork.dispatch import hub as hubs
from kilnwork.dispatch import journal, model
from kilnwork.kit import clock, coroutines, ids
from kilnwork.kube import client, errors
from support import bare_api, told_hub, waiting

NS = "default"
LONG = "a." * 126 + "a"
SETTINGS = controllers.Settings(
    channel="unix:/run/kiln/channel.sock",
    worker_command=("python", "-m", "kilnwork.worker"),
    worker_image="kilnwork/worker:test",
)
QUIET_S = 0.3
"""Long enough for a write that should not happen to happen."""


async def eventually(look: Callable[[], Any], *, what: str, timeout_s: float = 5.0) -> Any:
    """The first truthy answer of `look`, which may be a coroutine function."""
    return await waiting.until_async(look, what=what, timeout_s=timeout_s)


class Writes:
    """Counts the changes of each object of one kind, from a watch of its own."""

    def __init__(self, kube: client.Client, kind: resource.Resource) -> None:
        self.count: Counter[str] = Counter()
        self._kube = kube
        self._kind = kind

    async def follow(self) -> None:
        """Count until cancelled."""
        changes = self._kube.watch(self._kind, NS, resource_version="1", type=meta.Partial)
        async with contextlib.aclosing(changes):
            async for change in changes:
                if change.kind == "MODIFIED":
                    self.count[change.key[1]] += 1


class World:
    """An API server, a dispatcher that is told what to say, and controllers between them."""

    def __init__(self, kube: client.Client) -> None:
        self.kube = kube
        self.hub = told_hub.ToldHub(wall=clock.SystemClock().wall())
        self.controllers = self._new()
        self.tasks = Writes(kube, resource.TASKS)
        self.clusters = Writes(kube, resource.TASK_CLUSTERS)
        self._watching = coroutines.Crew("test")

    async def start(self) -> None:
        """Begin."""
        for writes in (self.tasks, self.clusters):
            self._watching.start("writes", writes.follow())
        await self.controllers.start(self.hub)

    async def stop(self) -> None:
        """End."""
        await self.controllers.stop()
        await self._watching.stop()

    def _new(self) -> controllers.Controllers:
        return controllers.Controllers(self.kube, SETTINGS, time=clock.SystemClock())

    async def restart(self) -> None:
        """A new manager on the same API server and dispatcher."""
        await self.controllers.stop()
        self.controllers = self._new()
        await self.controllers.start(self.hub)

    async def task(self, name: str, **spec: Any) -> str:
        """Declare a Task; gives its uid."""
        body = _body(resource.TASKS, name, spec={"command": ["true"], **spec})
        made = await self.kube.create(resource.TASKS, body, NS)
        uid: str = made["metadata"]["uid"]
        return uid

    async def cluster(self, name: str = "default", **spec: Any) -> None:
        """Declare a TaskCluster."""
        body = _body(resource.TASK_CLUSTERS, name, spec=spec)
        await self.kube.create(resource.TASK_CLUSTERS, body, NS)

    async def data(self, name: str, data: Any) -> None:
        """Make a TaskObject."""
        body = {**_body(resource.TASK_OBJECTS, name), "data": data}
        await self.kube.create(resource.TASK_OBJECTS, body, NS)

    async def spec(self, name: str, **spec: Any) -> None:
        """Change the spec of a Task."""
        await self.kube.merge_patch(resource.TASKS, name, {"spec": spec}, NS)

    async def status(self, name: str, kind: resource.Resource = resource.TASKS) -> dict[str, Any]:
        """Status of an object."""
        found = await self.kube.get(kind, name, NS)
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def says(self, name: str, state: str, reason: str, *, within_s: float = 5.0) -> Any:
        """Wait until a Task tells this state and reason; gives its status."""

        async def told() -> dict[str, Any] | None:
            status = await self.status(name)
            same = (status.get("state"), status.get("reason")) == (state, reason)
            return status if same else None

        return await eventually(told, what=f"{state}/{reason}", timeout_s=within_s)

    async def submitted(self, name: str, times: int = 1, *, within_s: float = 5.0) -> None:
        """Wait until the dispatcher has a task."""
        await eventually(
            lambda: self.hub.names().count(name) >= times,
            what=f"{name} submitted",
            timeout_s=within_s,
        )

    async def pods(self) -> dict[str, dict[str, Any]]:
        """All Pods by name."""
        listed = await self.kube.list(resource.PODS, NS, type=dict)
        return {p["metadata"]["name"]: p for p in listed.items}

    async def has_pods(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until exactly these Pods exist."""

        async def found() -> dict[str, dict[str, Any]] | None:
            pods = await self.pods()
            return pods if sorted(pods) == sorted(names) else None

        made: dict[str, dict[str, Any]] = await eventually(found, what=f"Pods {names}")
        return made

    async def kube_events(self, reason: str) -> list[dict[str, Any]]:
        """Kube events with a reason."""
        listed = await self.kube.list(resource.EVENTS, NS, type=dict)
        return [e for e in listed.items if e["reason"] == reason]


def _body(kind: resource.Resource, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}


def _worker(pod: dict[str, Any], *, busy: int = 0, ready: bool = True) -> model.WorkerView:
    metadata = pod["metadata"]
    return model.WorkerView(
        name=metadata["name"], pod_uid=metadata["uid"], node="n", slots=2, busy=busy, ready=ready
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with bare_api.running(tmp_path) as kube:
        made = World(kube)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


# Tasks


async def test_task_is_submitted_with_its_inputs(world: World) -> None:
    await world.cluster()
    await world.data("start", {"count": "0"})
    await world.task("a", inputObject="start")
    await world.submitted("a")
    assert world.hub.submitted[0].inputs == b'{"input":{"count":"0"}}'


async def test_short_task_costs_one_status_write(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.run("a")
    world.hub.succeed("a")
    status = await world.says("a", "Success", "Succeeded")
    await asyncio.sleep(QUIET_S)
    assert world.tasks.count["a"] == 1
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Started": "True",
        "Finished": "True",
    }


async def test_task_that_takes_longer_costs_two_status_writes(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.run("a")
    status = await world.says("a", "Running", "Started")
    assert status["podName"] == "w-0"
    world.hub.succeed("a")
    await world.says("a", "Success", "Succeeded")
    await asyncio.sleep(QUIET_S)
    assert world.tasks.count["a"] == 2


async def test_reconciling_again_writes_nothing(world: World) -> None:
    await world.cluster(replicas=2)
    await world.has_pods("default-0", "default-1")
    for name in ("a", "b", "c"):
        await world.task(name)
        await world.submitted(name)
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"x":null}'))
    world.hub.run("b")
    await world.says("a", "Success", "Succeeded")
    await world.says("b", "Running", "Started")
    await world.says("c", "Pending", "NoWorker")
    await asyncio.sleep(QUIET_S)
    before = world.tasks.count | world.clusters.count
    pods = {n: p["metadata"]["resourceVersion"] for n, p in (await world.pods()).items()}
    await world.restart()
    await asyncio.sleep(1.0)
    assert world.tasks.count | world.clusters.count == before
    assert sum(before.values()) >= 4
    assert {n: p["metadata"]["resourceVersion"] for n, p in (await world.pods()).items()} == pods


async def test_result_keeps_its_nulls_in_the_status(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"x":null,"y":[1]}'))
    status = await world.says("a", "Success", "Succeeded")
    assert status["result"]["value"] == {"x": None, "y": [1]}


async def test_missing_cluster_is_told_and_its_coming_starts_the_task(world: World) -> None:
    await world.task("a", clusterName="counter")
    status = await world.says("a", "Pending", "WaitingForCluster", within_s=1.0)
    assert "TaskCluster counter" in status["message"]
    await world.cluster("counter")
    await world.submitted("a", within_s=1.0)


async def test_missing_object_is_told_and_its_coming_starts_the_task(world: World) -> None:
    await world.cluster()
    await world.task("a", inputObject="start")
    status = await world.says("a", "Pending", "WaitingForObject", within_s=1.0)
    assert "TaskObject start" in status["message"]
    await world.data("start", 1)
    await world.submitted("a", within_s=1.0)


async def test_task_waits_for_the_result_of_another(world: World) -> None:
    await world.cluster()
    inputs = [{"name": "x", "task": "first", "path": "$.value"}]
    await world.task("second", inputs=inputs)
    await world.says("second", "Pending", "WaitingForTask", within_s=1.0)
    await world.task("first")
    await world.submitted("first")
    world.hub.succeed("first", result=attempts.Payload("application/json", b'{"value":7}'))
    await world.submitted("second", within_s=1.0)
    assert world.hub.submitted[-1].inputs == b'{"x":7}'


async def test_failed_input_fails_its_dependents(world: World) -> None:
    await world.cluster()
    await world.task("first")
    await world.task("second", inputs=[{"name": "x", "task": "first"}])
    await world.submitted("first")
    world.hub.move("first", "Failed", reason="NonZeroExit", message="exit code 3", exit_code=3)
    status = await world.says("second", "Failed", "InputFailed")
    assert "exit code 3" in status["message"]
    assert await world.kube_events("NonZeroExit")


async def test_missing_account_is_told_and_its_coming_makes_workers(world: World) -> None:
    await world.cluster(serviceAccountName="counter")
    await world.task("a")
    status = await world.says("a", "Pending", "WaitingForServiceAccount", within_s=1.0)
    assert "ServiceAccount counter" in status["message"]
    account = _body(resource.SERVICE_ACCOUNTS, "counter")
    await world.kube.create(resource.SERVICE_ACCOUNTS, account, NS)
    pods = await world.has_pods("default-0")
    assert pods["default-0"]["spec"]["serviceAccountName"] == "counter"


async def test_longest_task_name_runs(world: World) -> None:
    await world.cluster()
    await world.task(LONG)
    await world.submitted(LONG)
    world.hub.move(LONG, "Failed", reason="NonZeroExit", message="x", exit_code=1)
    await world.says(LONG, "Failed", "NonZeroExit")
    await eventually(lambda: world.kube_events("NonZeroExit"), what="kube event")


async def test_kill_timestamp_kills(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.run("a")
    now = clock.SystemClock().wall()
    await world.spec("a", killTimestamp=clock.rfc3339(now))
    status = await world.says("a", "Killed", "Killed")
    assert {"type": "Stopped", "status": "True"}.items() <= status["conditions"][2].items()


async def test_kill_timestamp_before_submission_needs_no_dispatcher(world: World) -> None:
    await world.task("a", clusterName="none", killTimestamp="2026-01-01T00:00:00Z")
    await world.says("a", "Killed", "Killed")
    assert world.hub.names() == []


async def test_suspended_task_starts_when_it_is_let_go(world: World) -> None:
    await world.cluster()
    await world.task("a", suspend=True)
    await world.says("a", "Pending", "Suspended", within_s=1.0)
    assert world.hub.names() == []
    await world.spec("a", suspend=False)
    await world.submitted("a", within_s=1.0)


async def test_deleted_object_kills_its_task(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    await world.kube.delete(resource.TASKS, "a", NS)
    await eventually(lambda: world.hub.killed == [("a", "Deleted")], what="kill")


async def test_object_deleted_while_the_manager_was_away_kills_its_task(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.task("b")
    await world.submitted("b")
    await world.submitted("a")
    await world.controllers.stop()
    await world.kube.delete(resource.TASKS, "a", NS)
    await world.task("c")
    await world.restart()
    await eventually(lambda: world.hub.killed == [("a", "Deleted")], what="kill")
    await world.submitted("c")


async def test_object_made_anew_is_another_task(world: World) -> None:
    await world.cluster()
    first = await world.task("a")
    await world.submitted("a")
    await world.kube.delete(resource.TASKS, "a", NS)
    second = await world.task("a")
    await world.submitted("a", times=2)
    assert first != second
    await eventually(lambda: world.hub.killed == [("a", "Deleted")], what="kill")
    world.hub.succeed("a")
    await world.says("a", "Success", "Succeeded")


async def test_end_that_came_while_the_manager_was_away_is_told(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    await world.controllers.stop()
    world.hub.succeed("a")
    await world.restart()
    await world.says("a", "Success", "Succeeded")


async def test_failed_task_runs_anew_when_run_rises(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.move("a", "Failed", reason="NonZeroExit", message="exit code 1", exit_code=1)
    await world.says("a", "Failed", "NonZeroExit")
    await world.spec("a", run=2)
    await world.submitted("a", times=2)
    world.hub.run("a")
    status = await world.says("a", "Running", "Started")
    assert status["run"] == 2


async def test_success_runs_anew_only_by_force(world: World) -> None:
    await world.cluster()
    await world.task("a")
    await world.submitted("a")
    world.hub.succeed("a")
    await world.says("a", "Success", "Succeeded")
    await world.spec("a", run=2)
    await eventually(lambda: world.kube_events("RunRefused"), what="kube event")
    patch = {"metadata": {"annotations": {plan.FORCE_ANNOTATION: "2"}}}
    await world.kube.merge_patch(resource.TASKS, "a", patch, NS)
    await eventually(lambda: any(v.run == 2 for v in world.hub.views.values()), what="second run")


async def test_result_is_written_to_the_output_object(world: World) -> None:
    await world.cluster()
    await world.task("a", outputObject="out")
    await world.submitted("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b'{"n":1}'))
    status = await world.says("a", "Success", "Succeeded")
    assert status["outputObject"] == "out"
    made = await world.kube.get(resource.TASK_OBJECTS, "out", NS)
    assert made["data"] == {"n": 1}


async def test_output_object_of_somebody_else_is_left_alone(world: World) -> None:
    await world.cluster()
    await world.data("out", "mine")
    await world.task("a", outputObject="out")
    await world.submitted("a")
    world.hub.succeed("a", result=attempts.Payload("application/json", b"1"))
    status = await world.says("a", "Success", "Succeeded")
    assert "outputObject" not in status
    assert (await world.kube.get(resource.TASK_OBJECTS, "out", NS))["data"] == "mine"
    assert await world.kube_events("OutputObjectNotMade")


async def test_finished_task_is_deleted_after_its_time(world: World) -> None:
    await world.cluster()
    await world.task("a", ttlSecondsAfterFinished=1)
    await world.submitted("a")
    world.hub.succeed("a")
    await world.says("a", "Success", "Succeeded")

    async def gone() -> bool:
        try:
            await world.status("a")
        except errors.NotFound:
            return True
        return False

    await eventually(gone, what="deleted", timeout_s=4.0)


async def test_many_tasks_are_submitted_at_once(world: World) -> None:
    await world.cluster()
    await asyncio.gather(*(world.task(f"t-{n}") for n in range(100)))
    await eventually(lambda: len(world.hub.views) == 100, what="all submitted")


# With the real dispatcher


async def test_journal_and_objects_agree_after_a_restart(tmp_path: Path) -> None:
    async with bare_api.running(tmp_path) as kube:
        world = World(kube)
        await world.cluster(replicas=0)
        for name in ("stays", "goes"):
            await world.task(name)
        async with _dispatcher(kube, tmp_path):
            status = await world.says("goes", "Pending", "NoWorker")
            assert status["message"] == "TaskCluster default: spec.replicas is 0"
            await world.says("stays", "Pending", "NoWorker")
        await kube.delete(resource.TASKS, "goes", NS)
        async with _dispatcher(kube, tmp_path) as hub:
            await eventually(
                lambda: {str(v.state) for v in hub.declared("goes")} == {"Killed"}, what="killed"
            )
            assert [str(v.state) for v in hub.declared("stays")] == ["Pending"]
            await kube.delete(resource.TASK_CLUSTERS, "default", NS)
            await world.says("stays", "Failed", "ClusterDeleted")


class _Dispatcher:
    """The real hub, and what it has of a name."""

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
async def _dispatcher(kube: client.Client, folder: Path) -> AsyncIterator[_Dispatcher]:
    made = controllers.Controllers(kube, SETTINGS, time=clock.SystemClock())
    hub = hubs.Hub(
        journal.Journal(folder / "journal.db"),
        clock=clock.SystemClock(),
        verifier=made.verifier,
        logs_dir=folder / "logs",
        entropy=ids.system_entropy(),
    )
    await hub.start(folder / "channel.sock")
    watcher, crew = _Dispatcher(hub), coroutines.Crew("test")
    await made.start(hub)
    crew.start("follow", watcher.follow())
    try:
        yield watcher
    finally:
        await crew.stop()
        await made.stop()
        await hub.stop()


# TaskClusters


async def test_cluster_gets_its_secret_and_pods(world: World) -> None:
    await world.cluster("counter", replicas=3, deploymentName="dep", slotsPerWorker=2)
    pods = await world.has_pods("dep-0", "dep-1", "dep-2")
    secret = await world.kube.get(resource.SECRETS, "counter-channel", NS)
    mounted = pods["dep-0"]["spec"]["volumes"][0]["secret"]["secretName"]
    assert mounted == "counter-channel"
    assert secret["metadata"]["ownerReferences"][0]["name"] == "counter"


async def test_longest_cluster_name_gets_pods(world: World) -> None:
    await world.cluster(LONG)
    pods = await eventually(world.pods, what="a Pod")
    assert all(len(name) <= 63 for name in pods)


async def test_deleted_pod_is_replaced_and_its_worker_given_up(world: World) -> None:
    await world.cluster()
    first = (await world.has_pods("default-0"))["default-0"]
    world.hub.tell_cluster((NS, "default"), _worker(first))
    await world.kube.delete(resource.PODS, "default-0", NS)
    await eventually(lambda: world.hub.gone, what="worker given up")
    assert world.hub.gone[0] == first["metadata"]["uid"]

    async def replaced() -> bool:
        pods = await world.pods()
        return any(p["metadata"]["uid"] != first["metadata"]["uid"] for p in pods.values())

    await eventually(replaced, what="replaced")


async def test_failed_pod_is_replaced(world: World) -> None:
    await world.cluster()
    first = (await world.has_pods("default-0"))["default-0"]
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await world.kube.merge_patch(resource.PODS, "default-0", patch, NS, subresource="status")

    async def replaced() -> bool:
        pods = await world.pods()
        return any(p["metadata"]["uid"] != first["metadata"]["uid"] for p in pods.values())

    await eventually(replaced, what="replaced")


async def test_fewer_replicas_delete_the_last_pods(world: World) -> None:
    await world.cluster(replicas=3)
    await world.has_pods("default-0", "default-1", "default-2")
    await world.kube.merge_patch(resource.TASK_CLUSTERS, "default", {"spec": {"replicas": 1}}, NS)
    await world.has_pods("default-0")


async def test_status_tells_workers_slots_and_queue(world: World) -> None:
    await world.cluster()
    pod = (await world.has_pods("default-0"))["default-0"]
    world.hub.tell_cluster((NS, "default"), _worker(pod, busy=1), queued=3)

    async def told() -> bool:
        status = await world.status("default", resource.TASK_CLUSTERS)
        return status.get("readyReplicas") == 1 and status["slots"] == {"total": 2, "busy": 1}

    await eventually(told, what="status")
    status = await world.status("default", resource.TASK_CLUSTERS)
    assert status["queued"] == 3
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Available": "True",
        "Ready": "True",
    }


async def test_name_that_is_taken_is_told(world: World) -> None:
    pod = _body(resource.PODS, "default-0", spec={"containers": [{"name": "x", "image": "x"}]})
    await world.kube.create(resource.PODS, pod, NS)
    await world.cluster()

    async def told() -> bool:
        status = await world.status("default", resource.TASK_CLUSTERS)
        return any(c["reason"] == "PodNameTaken" for c in status.get("conditions", ()))

    await eventually(told, what="PodNameTaken")
    await world.kube.delete(resource.PODS, "default-0", NS)

    async def made() -> bool:
        found = (await world.pods()).get("default-0")
        return found is not None and "kilnwork.dev/cluster" in found["metadata"]["labels"]

    await eventually(made, what="worker Pod")


async def test_new_slots_replace_idle_pods(world: World) -> None:
    await world.cluster(replicas=1)
    await world.has_pods("default-0")
    patch = {"spec": {"slotsPerWorker": 5}}
    await world.kube.merge_patch(resource.TASK_CLUSTERS, "default", patch, NS)

    async def renewed() -> bool:
        found = (await world.pods()).get("default-0")
        return (
            found is not None
            and {"name": "KILN_SLOTS", "value": "5"} in (found["spec"]["containers"][0]["env"])
        )

    await eventually(renewed, what="new Pod")


async def test_deleted_secret_is_made_anew_and_only_the_new_token_counts(world: World) -> None:
    await world.cluster()
    await world.has_pods("default-0")
    before = await world.kube.get(resource.SECRETS, "default-channel", NS)
    await world.kube.delete(resource.SECRETS, "default-channel", NS)

    async def made() -> dict[str, Any] | None:
        try:
            found = await world.kube.get(resource.SECRETS, "default-channel", NS)
        except errors.NotFound:
            return None
        return found if found["data"] != before["data"] else None

    assert await eventually(made, what="new Secret")


async def test_deleted_cluster_is_closed_also_after_a_restart(world: World) -> None:
    await world.cluster("gone")
    await world.kube.delete(resource.TASK_CLUSTERS, "gone", NS)
    await eventually(lambda: (NS, "gone") in world.hub.closed, what="closed")
    await world.controllers.stop()
    world.hub.closed.clear()
    world.hub.tell_cluster((NS, "gone"), queued=1)
    await world.restart()
    await eventually(lambda: (NS, "gone") in world.hub.closed, what="closed again")


async def test_default_cluster_is_made_once(world: World) -> None:
    assert await controllers.ensure_default(world.kube, slots=2)
    assert not await controllers.ensure_default(world.kube, slots=2)
    await world.kube.delete(resource.TASK_CLUSTERS, "default", NS)
    assert not await controllers.ensure_default(world.kube, slots=2)


async def test_default_cluster_that_exists_is_left_as_it_is(world: World) -> None:
    await world.cluster("default", replicas=2)
    assert not await controllers.ensure_default(world.kube, slots=7)
    found = await world.kube.get(resource.TASK_CLUSTERS, "default", NS)
    assert found["spec"]["replicas"] == 2
