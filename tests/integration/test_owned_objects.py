"""Tasks that own a Pod, an object or a Workflow, with all controllers, a real hub and journal, an
API server and a node.

Behaviour of every executor is tested in tests/contract with spawned tasks, which own nothing.
Behaviour of Pods alone is in test_pod_tasks.py.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, attempts, kinds, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource import template as objects
from kilnwork.executors.pod import template as pods
from kilnwork.kit import ids, processes
from kilnwork.kube import client, errors
from support import (
    argo_replay,
    controller_world,
    object_subject,
    pod_world,
    short_paths,
    waiting,
    workflow_subject,
)

NS = pod_world.NS
FOREVER = "while :; do sleep 0.1; done"
NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Owned:
    """A kind that runs a shell script for a task. `definition`: of the kind; `controller`: what
    runs it; both None for Pods, which a node runs.
    """

    kind: api_resources.Resource
    definition: dict[str, Any] | None = None
    controller: type[object_subject.Printer] | None = None

    def spec(self, script: str) -> dict[str, Any]:
        """Return the executor fields of the spec of a Task."""
        if self.kind is object_subject.BOOKS:
            result = msgspec.to_builtins(object_subject.RESULT)
            return {"customResource": {"manifest": object_subject.book(script), "result": result}}
        if self.kind is argo_replay.WORKFLOWS:
            return {"workflow": {"manifest": workflow_subject.flow(script)}}
        containers = [pod_world.worker_container(script)]
        return {"pod": {"spec": {"containers": containers, "automountServiceAccountToken": False}}}


OWNED = {
    "pod": Owned(api_resources.PODS),
    "object": Owned(object_subject.BOOKS, object_subject.DEFINITION, object_subject.Printer),
    "workflow": Owned(argo_replay.WORKFLOWS, argo_replay.DEFINITION, workflow_subject.Controller),
}


class World(pod_world.World):
    """A control plane with that kind, and a manager."""

    def __init__(self, directory: Path, owned: Owned) -> None:
        super().__init__(directory)
        self.owned = owned
        self.settings = msgspec.structs.replace(controller_world.SETTINGS, allowed_kinds=("*",))

    async def declare(self, name: str, script: str, **more: Any) -> str:
        """Declare a Task whose program reports its start and then runs `script`."""
        says = f'echo "$KILN_ATTEMPT" >> {self.directory}/starts; {script}'
        spec = {"timeouts": {"killGraceSeconds": 1}, **self.owned.spec(says), **more}
        made = await self.kube.create(
            kinds.TASKS, controller_world.body(kinds.TASKS, name, spec=spec), NS
        )
        return str(made["metadata"]["uid"])

    async def objects(self) -> list[dict[str, Any]]:
        """Return all objects of its kind."""
        return list((await self.kube.list(self.owned.kind, NS, type=dict)).items)

    def starts(self) -> list[int]:
        """Return the numbers of the attempts whose program was started."""
        file = self.directory / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    async def runs(self, name: str) -> dict[str, Any]:
        """Wait until a Task runs; return its only object."""
        await self.wait_for_state(name, "Running")
        await waiting.wait_until_async(self.starts, what="its program has started")
        [found] = await self.objects()
        return found

    async def wait_until_clean(self, uid: str) -> None:
        """Wait until there is no object and no program of a task."""
        marker = f"KILN_TASK_ID={uid}"

        async def none() -> bool:
            return not await self.objects() and not processes.find_members(None, marker=marker)

        await waiting.wait_until_async(none, what="nothing is left")


@contextlib.asynccontextmanager
async def running(owned: Owned) -> AsyncIterator[World]:
    made = World(short_paths.directory(), owned)
    await made.plane.start()
    try:
        await made.plane.start_node()
        async with contextlib.AsyncExitStack() as stack:
            made.kube = await stack.enter_async_context(
                client.Client(made.plane.admin_config(), user_agent="test")
            )
            if owned.definition is not None and owned.controller is not None:
                await object_subject.define(made.kube, owned.definition, owned.kind)
                printing = object_subject.running_printer(made.kube, owned.controller)
                await stack.enter_async_context(printing)
            await made.start()
            yield made
            await made.end()
    finally:
        await made.plane.stop()


@pytest.fixture(params=OWNED)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with running(OWNED[request.param]) as made:
        yield made


async def test_next_manager_adopts_the_objects_of_its_tasks(world: World) -> None:
    gate = world.directory / "gate"
    uid = await world.declare("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    before = await world.runs("a")
    owner = before["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"]) == (uid, True)
    await world.end()
    await world.start()
    gate.touch()
    status = await world.wait_for_state("a", "Success", "Succeeded")
    [after] = await world.objects()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (status["attempts"], world.starts()) == (1, [1])


async def test_object_owned_by_another_uid_is_not_adopted(world: World) -> None:
    """It has the name and the labels of the attempt: the uid of its owner decides."""
    other = await world.declare("other", FOREVER, suspend=True)
    uid = await world.declare("a", "true", suspend=True)
    made = await world.kube.create(
        world.owned.kind, named_like(world.owned, uid, owner=("other", other)), NS
    )
    await world.kube.merge_patch(kinds.TASKS, "a", {"spec": {"suspend": False}}, NS)
    status = await world.wait_for_state("a", "Failed", "NameTaken")
    assert made["metadata"]["name"] in status["message"]
    [left] = await world.objects()
    assert left["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


def named_like(owned: Owned, uid: str, *, owner: tuple[str, str]) -> dict[str, Any]:
    """Return an object like that of attempt 1 of Task `a` with that uid, but with another owner."""
    attempt = port.Attempt(
        ref=attempts.AttemptRef(ids.task_id(uid), 1, 1),
        namespace=NS,
        name="a",
        owner_uid=uid,
        spec=msgspec.convert(owned.spec(FOREVER), task.TaskSpec),
    )
    if owned.kind is api_resources.PODS:
        body = pods.pod(attempt)
    else:
        body = dict(objects.wanted(attempt, str(attempt.spec.executor)).body)
    reference = {**body["metadata"]["ownerReferences"][0], "name": owner[0], "uid": owner[1]}
    metadata = {**body["metadata"], "ownerReferences": [reference], "finalizers": []}
    return {**body, "metadata": metadata}


@pytest.mark.parametrize("world", ["object", "workflow"], indirect=True)
@pytest.mark.parametrize("manager", [True, False])
async def test_deleted_task_removes_its_objects(world: World, *, manager: bool) -> None:
    """Without a manager the finalizer waits for the next one. For Pods: test_pod_tasks.py."""
    uid = await world.declare("a", FOREVER)
    await world.runs("a")
    if not manager:
        await world.end()
    await world.kube.delete(kinds.TASKS, "a", NS)
    if not manager:
        await world.start()
    await world.wait_until_clean(uid)
    assert world.starts() == [1]


@pytest.mark.parametrize("world", ["object", "workflow"], indirect=True)
async def test_object_created_by_a_deposed_manager_is_removed(world: World) -> None:
    """The request arrives long after the next manager has decided about the attempt. For Pods:
    test_pod_tasks.py.
    """
    uid = await world.declare("a", FOREVER)
    found = await world.runs("a")
    metadata = dict(found["metadata"])
    for field in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences", "generation"):
        metadata.pop(field, None)
    body = {**found, "metadata": metadata, "status": {}}
    kill = {"spec": {"killTimestamp": NOW}}
    await world.kube.merge_patch(kinds.TASKS, "a", kill, NS)
    await world.wait_for_state("a", "Killed", "Killed")
    with contextlib.suppress(errors.NotFound):
        await world.kube.delete(world.owned.kind, metadata["name"], NS)
    await world.wait_until_clean(uid)
    await world.kube.create(world.owned.kind, body, NS)
    await world.wait_until_clean(uid)
    assert (await world.status("a"))["reason"] == "Killed"


@pytest.mark.parametrize("world", ["object", "workflow"], indirect=True)
async def test_end_before_a_kill_arrives_counts(world: World) -> None:
    """It ends by itself before the request to end it arrives, which then conflicts. For Pods:
    test_pod_tasks.py.
    """
    gate = world.directory / "gate"
    await world.declare("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.runs("a")

    async def ends() -> None:
        async def over() -> bool:
            [found] = await world.objects()
            return bool(found["status"]["phase"] == "Succeeded")

        gate.touch()
        await waiting.wait_until_async(over, what="it is over")

    world.manager.before_delete = ends
    await world.kube.merge_patch(kinds.TASKS, "a", {"spec": {"killTimestamp": NOW}}, NS)
    await world.wait_for_state("a", "Success", "Succeeded")
    [left] = await world.objects()
    assert not left["spec"].get("shutdown")
    assert world.manager.before_delete is None


async def test_future_kill_timestamp_does_not_affect_retries_or_success(
    world: World,
) -> None:
    ahead = {"killTimestamp": "2099-01-01T00:00:00Z", "retry": {"maxAttempts": 2}}
    await world.declare("a", '[ "$KILN_ATTEMPT" = 2 ]', **ahead)
    status = await world.wait_for_state("a", "Success", "Succeeded")
    assert (status["attempts"], world.starts()) == (2, [1, 2])
