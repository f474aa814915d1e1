"""Tasks that are Workflows, against recorded statuses of the real workflow-controller of Argo."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kilnwork.api import api_resources, object_task, result_rule_compiler
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.executors import port
from kilnwork.kit import ids
from kilnwork.kube import client
from support import (
    argo_replay,
    embedded_server,
    executor_world,
    object_subject,
    short_paths,
    waiting,
)

NS = argo_replay.NS
ALL = port.LogRange()


class Setting:
    """A control plane, a manager of executor `workflow`, and a client."""

    def __init__(self, world: executor_world.World, admin: client.Client) -> None:
        self.world = world
        self.admin = admin

    async def submit(self, story: str, **more: Any) -> ids.TaskId:
        """Submit a task whose Workflow goes through a story."""
        more.setdefault("timeouts", api_task.Timeouts(kill_grace_seconds=20))
        submission = model.Submission(
            task=ids.new_task_id(),
            namespace=NS,
            name="t1",
            spec=self.world.subject.spec(story, **more),
            declared=False,
        )
        await self.world.hub.submit(submission)
        return submission.task

    async def only_workflow(self) -> dict[str, Any]:
        """Wait for a Workflow and return it; there must be only one."""

        async def look() -> list[Any]:
            return list((await self.admin.list(argo_replay.WORKFLOWS, NS, type=dict)).items)

        [found] = await waiting.wait_until_async(look, what="a Workflow exists")
        return dict(found)


@pytest.fixture
async def bare() -> AsyncIterator[Setting]:
    """Run a setting in which Workflows are not served yet."""
    directory = short_paths.directory()
    async with embedded_server.admin_beside_node(directory) as admin:
        subject = argo_replay.WorkflowSubject(admin)
        async with executor_world.running(directory, subject) as world:
            yield Setting(world, admin)


@pytest.fixture
async def with_node() -> AsyncIterator[Setting]:
    """Run a `setting` with a node."""
    directory = short_paths.directory()
    async with embedded_server.admin_beside_node(directory, node=True) as admin:
        await admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, argo_replay.DEFINITION)
        subject = argo_replay.WorkflowSubject(admin)
        async with (
            executor_world.running(directory, subject) as world,
            argo_replay.running(admin),
        ):
            yield Setting(world, admin)


@pytest.fixture
async def unheard(bare: Setting) -> Setting:
    """Run a setting with Argo installed and its controller stopped."""
    await bare.admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, argo_replay.DEFINITION)
    return bare


@pytest.fixture
async def setting(unheard: Setting) -> AsyncIterator[Setting]:
    async with argo_replay.running(unheard.admin):
        yield unheard


@pytest.mark.parametrize(
    ("story", "state", "reason", "code", "says"),
    [
        ("success", "Success", "Succeeded", None, ""),
        ("retried", "Success", "Succeeded", None, ""),
        ("failure", "Failed", "WorkflowFailed", 3, ""),
        ("exhausted", "Failed", "WorkflowFailed", 4, "No more retries left"),
        ("error", "Failed", "ExecutorError", None, "init: Error (exit code 64)"),
        ("invalid", "Failed", "WorkflowFailed", None, "template name 'nowhere' undefined"),
    ],
)
async def test_workflow_end_is_the_end_of_the_task(
    setting: Setting, story: str, state: str, reason: str, code: int | None, says: str
) -> None:
    task = await setting.submit(story)
    view = await setting.world.wait_for_state(task, state, reason)
    assert (view.exit_code, view.attempt) == (code, 1)
    assert says in view.message
    await setting.world.wait_until_clean()


async def test_global_outputs_are_the_result(setting: Setting) -> None:
    task = await setting.submit("success")
    view = await setting.world.wait_for_state(task, "Success")
    assert view.result is not None
    assert view.result.data == b'{"greeting":"hello"}'


async def test_suspension_is_shown_until_resumed(setting: Setting) -> None:
    task = await setting.submit("suspend")
    view = await setting.world.wait_for_state(task, "Running", "Suspended")
    assert "step approve waits to be resumed" in view.message
    await argo_replay.resume(setting.admin, (await setting.only_workflow())["metadata"]["name"])
    await setting.world.wait_for_state(task, "Success", "Succeeded")


async def test_kill_stops_the_workflow(setting: Setting) -> None:
    task = await setting.submit("stop")
    await setting.world.wait_for_state(task, "Running", "Suspended")
    await setting.world.kill(task)
    view = await setting.world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await setting.world.wait_until_clean()


async def test_workflow_that_does_not_stop_in_time_is_terminated(setting: Setting) -> None:
    task = await setting.submit("terminate", timeouts=api_task.Timeouts(kill_grace_seconds=2))
    await setting.world.wait_for_state(task, "Running", "Suspended")
    await setting.world.kill(task)
    await waiting.wait_until_async(
        lambda: setting.world.view(task).stopped, what="it is proved to have stopped"
    )
    assert setting.world.view(task).state == "Killed"
    await setting.world.wait_until_clean()


async def test_stop_precedes_terminate_and_resumes_the_workflow(
    unheard: Setting,
) -> None:
    task = await unheard.submit("stop", timeouts=api_task.Timeouts(kill_grace_seconds=3))
    name = (await unheard.only_workflow())["metadata"]["name"]
    running = {"spec": {"suspend": True}, "status": {"phase": "Running"}}
    await unheard.admin.merge_patch(argo_replay.WORKFLOWS, name, running, NS)
    await unheard.world.wait_for_state(task, "Running", "Suspended")
    await unheard.world.kill(task)

    async def shutdown() -> Any:
        spec = (await unheard.admin.get(argo_replay.WORKFLOWS, name, NS))["spec"]
        assert "suspend" not in spec or "shutdown" not in spec
        return spec.get("shutdown")

    assert await waiting.wait_until_async(shutdown, what="it is asked to stop") == "Stop"

    async def terminated() -> bool:
        return bool(await shutdown() == "Terminate")

    await waiting.wait_until_async(terminated, what="it is asked to terminate")


async def test_workflow_is_killed_when_its_pods_have_ended(setting: Setting) -> None:
    task = await setting.submit("stop")
    await setting.world.wait_for_state(task, "Running", "Suspended")
    name = (await setting.only_workflow())["metadata"]["name"]
    pod = {
        "metadata": {"name": "step", "labels": {"workflows.argoproj.io/workflow": name}},
        "spec": {"containers": [{"name": "main", "image": "label"}]},
    }
    await setting.admin.create(api_resources.PODS, pod, NS)
    await setting.world.kill(task)

    async def over() -> bool:
        found = await setting.admin.get(argo_replay.WORKFLOWS, name, NS)
        return bool(found["status"]["phase"] == "Failed")

    await waiting.wait_until_async(over, what="the Workflow is over")
    assert setting.world.view(task).state == "Killing"
    await setting.admin.delete(api_resources.PODS, "step", NS, grace_s=0)
    view = await setting.world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True


async def test_workflow_unseen_by_any_controller_is_deleted(unheard: Setting) -> None:
    task = await unheard.submit("success")
    view = await unheard.world.wait_for_state(task, "Staging", "Starting")
    await unheard.only_workflow()
    await waiting.wait_until_async(
        lambda: "no workflow-controller has seen it" in unheard.world.view(task).message,
        what="it says what it waits for",
    )
    await unheard.world.kill(task)
    view = await unheard.world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await unheard.world.wait_until_clean()


async def test_deleted_workflow_is_a_loss_and_created_again(setting: Setting) -> None:
    retry = api_task.Retry(max_losses=1, delay_seconds=0.05)
    task = await setting.submit("suspend", retry=retry)
    await setting.world.wait_for_state(task, "Running", "Suspended")
    first = (await setting.only_workflow())["metadata"]["name"]
    await setting.admin.delete(argo_replay.WORKFLOWS, first, NS)

    def second() -> bool:
        view = setting.world.view(task)
        return (view.attempt, view.losses, view.reason) == (2, 1, "Suspended")

    await waiting.wait_until_async(second, what="the second attempt waits to be resumed")
    await argo_replay.resume(setting.admin, (await setting.only_workflow())["metadata"]["name"])
    await setting.world.wait_for_state(task, "Success")


async def test_output_of_steps_is_kept_without_argos_containers(
    with_node: Setting,
) -> None:
    task = await with_node.submit("suspend")
    await with_node.world.wait_for_state(task, "Running", "Suspended")
    flow = (await with_node.only_workflow())["metadata"]["name"]

    async def step(name: str) -> None:
        containers = [
            {"name": part, "image": "label", "command": ["echo", f"{part} of {name}"]}
            for part in ("main", "wait")
        ]
        metadata = {
            "name": name,
            "labels": {"workflows.argoproj.io/workflow": flow},
            "annotations": {"workflows.argoproj.io/node-name": f"{flow}[0].{name}"},
        }
        spec = {"containers": containers, "restartPolicy": "Never"}
        await with_node.admin.create(api_resources.PODS, {"metadata": metadata, "spec": spec}, NS)

        async def over() -> bool:
            found = await with_node.admin.get(api_resources.PODS, name, NS)
            return bool(found["status"]["phase"] == "Succeeded")

        await waiting.wait_until_async(over, what=f"{name} is over")

    async def printed() -> list[tuple[str, bytes]]:
        executor = with_node.world.life.executor
        assert executor is not None
        assert isinstance(executor, port.ReadsLogs)
        attempt = with_node.world.attempt(task)
        return [
            (one.name, b"".join([piece async for piece in executor.logs(attempt, one, ALL)]))
            for one in await executor.outputs(attempt)
        ]

    await step("first")
    assert await printed() == [("", b"main of first\n")]
    await step("second")
    assert sorted(await printed()) == [
        ("[0].first", b"main of first\n"),
        ("[0].second", b"main of second\n"),
    ]


class AnyKind(object_subject.ObjectSubject):
    """Workflows under executor `customResource`, which has no knowledge of Workflows."""

    kind = argo_replay.WORKFLOWS

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        """Return the spec of a task that goes through a story; `script` is its name."""
        result = object_task.ObjectResult(
            success_condition='.status.phase == "Succeeded"',
            failure_condition=result_rule_compiler.Rule(
                json_path=".status.phase", operator="In", value=["Failed", "Error"]
            ),
            running_condition='.status.phase == "Running"',
            json_path="$.status.outputs.parameters[0].value",
        )
        manifest = {
            "apiVersion": argo_replay.WORKFLOWS.api_version,
            "kind": argo_replay.WORKFLOWS.kind,
            **argo_replay.workflow_manifest(script),
        }
        given = object_task.CustomResource(manifest=manifest, result=result)
        return api_task.TaskSpec(custom_resource=given, **more)


@pytest.fixture
async def as_object() -> AsyncIterator[Setting]:
    """Run a `setting` with the executor of objects of any kind."""
    directory = short_paths.directory()
    async with embedded_server.admin_beside_node(directory) as admin:
        await admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, argo_replay.DEFINITION)
        async with (
            executor_world.running(directory, AnyKind(admin)) as world,
            argo_replay.running(admin),
        ):
            yield Setting(world, admin)


async def test_workflow_can_be_a_custom_resource_task(as_object: Setting) -> None:
    """Its rules then define the meaning of phases, and stopping it means deleting it."""
    done, failed = await as_object.submit("success"), await as_object.submit("failure")
    view = await as_object.world.wait_for_state(done, "Success", "Succeeded")
    assert view.result is not None
    assert view.result.data == b'"hello"'
    await as_object.world.wait_for_state(failed, "Failed", "ObjectFailed")
    await as_object.world.wait_until_clean()
    task = await as_object.submit("suspend")
    await as_object.world.wait_for_state(task, "Running", "Started")
    await as_object.world.kill(task)
    view = await as_object.world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await as_object.world.wait_until_clean()


async def test_task_waits_until_argo_is_installed(bare: Setting) -> None:
    task = await bare.submit("success")
    view = await bare.world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    assert "no kind Workflow in argoproj.io/v1alpha1" in view.message
    await bare.admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, argo_replay.DEFINITION)
    async with argo_replay.running(bare.admin):
        await bare.world.wait_for_state(task, "Success", "Succeeded")
