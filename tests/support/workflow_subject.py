"""Subject of the executor contract for executor `workflow`, on the embedded Kubernetes.

Its controller runs the script of a Workflow's only template as a process, goes through the phases
of Argo, and ends the process as `spec.shutdown` requests. The arguments of a Workflow become its
outputs. `support.argo_replay` replays the statuses of the real controller; here a Workflow is only
a program that reports its start, as the contract's tests need.
"""

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kilnwork.api import object_task
from kilnwork.api import task as api_task
from kilnwork.executors.custom_resource import template
from support import argo_replay, embedded_server, object_subject


def flow(script: str, **metadata: Any) -> dict[str, Any]:
    """Return a Workflow with one step, which is a shell script."""
    container = {"image": "label", "command": ["sh", "-c"], "args": [script]}
    return {
        "apiVersion": argo_replay.WORKFLOWS.api_version,
        "kind": argo_replay.WORKFLOWS.kind,
        "metadata": metadata,
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "container": container}]},
    }


class Controller(object_subject.Printer):
    """Controller that runs Workflows as processes."""

    kind = argo_replay.WORKFLOWS
    subresource = None

    def script(self, seen: dict[str, Any]) -> str:
        [step] = seen["spec"]["templates"]
        return str(step["container"]["args"][0])

    def outputs(self, seen: dict[str, Any]) -> dict[str, Any]:
        given = seen["spec"].get("arguments")
        return {"outputs": given} if given else {}

    async def reconcile(self, seen: dict[str, Any], *, is_there: bool) -> None:
        shutdown = seen["spec"].get("shutdown")
        if shutdown:
            self.signal(seen, signal.SIGTERM if shutdown == "Stop" else signal.SIGKILL)
        if not (is_there and template.is_terminating(seen)):  # Pods go with it, not before
            await super().reconcile(seen, is_there=is_there)


class SteppingClient(object_subject.SteppingClient):
    """A client for which a request to stop a Workflow is a separate step."""

    kind = argo_replay.WORKFLOWS

    def step(self, method: str, body: bytes | None) -> str:
        if method == "PATCH" and b'"shutdown"' in (body or b""):
            return "shutdown"
        return super().step(method, body)


class ScriptSubject(argo_replay.WorkflowSubject):
    """Subject whose Workflows run scripts."""

    creates, deletes, releases = "POST workflow", "shutdown", "PATCH workflow"
    without = ("Pending", "ExecutorUnavailable", "no executor workflow")
    failed = "WorkflowFailed"
    client_type = SteppingClient

    def manifest(self, script: str, **metadata: Any) -> dict[str, Any]:
        return flow(script, **metadata)

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        given = object_task.WorkflowTemplate(manifest=flow(script))
        return api_task.TaskSpec(workflow=given, **more)

    def too_large(self, script: str, **more: Any) -> api_task.TaskSpec:
        manifest = flow(script)
        parameters = [{"name": "pages", "value": object_subject.LARGE}]
        manifest["spec"]["arguments"] = {"parameters": parameters}
        given = object_task.WorkflowTemplate(manifest=manifest)
        return api_task.TaskSpec(workflow=given, **more)


@contextlib.asynccontextmanager
async def on_workflows(directory: Path) -> AsyncIterator[ScriptSubject]:
    """Run executor `workflow` on a new control plane."""
    async with embedded_server.admin_beside_node(directory) as admin:
        await object_subject.define(admin, argo_replay.DEFINITION, argo_replay.WORKFLOWS)
        async with object_subject.running_printer(admin, Controller):
            yield ScriptSubject(admin)
