"""A replacement for Argo's workflow-controller that replays recorded statuses.

`argo_traces.json` was recorded by `hack.argo_traces`: for each story the statuses in order, and the
points at which a user has to act first. A Workflow with label `story` goes through that story, any
other through COMMON.
"""

import contextlib
import functools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kilnwork.api import api_resources, object_task
from kilnwork.api import task as api_task
from kilnwork.executors import custom_resource, workflow
from kilnwork.kit import coroutines
from kilnwork.kube import cache, client, errors, reflector
from support import object_subject, waiting

NS = object_subject.NS
WORKFLOWS = api_resources.Resource(
    group="argoproj.io",
    version="v1alpha1",
    kind="Workflow",
    plural="workflows",
    singular="workflow",
)
RECORDED = "wf-recorded"
"""Name of the Workflows that were recorded."""
COMMON = "retried"
"""Story of Workflows without a label `story`."""

DEFINITION = {
    "metadata": {"name": WORKFLOWS.qualified},
    "spec": {
        "group": WORKFLOWS.group,
        "scope": "Namespaced",
        "names": {"kind": WORKFLOWS.kind, "plural": WORKFLOWS.plural},
        "versions": [
            {
                "name": WORKFLOWS.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""As Argo's own, which has no subresource `status` either."""


@functools.cache
def stories() -> dict[str, list[dict[str, Any]]]:
    """Return the steps of each story: a `status`, or what a user must do before it goes on
    (`await`).
    """
    found: dict[str, list[dict[str, Any]]] = json.loads(
        (Path(__file__).parent / "argo_traces.json").read_text()
    )
    return found


@functools.cache
def hera_workflows() -> dict[str, dict[str, Any]]:
    """Return Workflows as `Workflow.to_dict()` of Hera 7.1.0 makes them (`hack.hera_workflows`)."""
    found: dict[str, dict[str, Any]] = json.loads(
        (Path(__file__).parent / "hera_workflows.json").read_text()
    )
    return found


def workflow_manifest(story: str) -> dict[str, Any]:
    """Return the manifest of a Workflow that goes through a story."""
    return {
        "metadata": {"labels": {"story": story}},
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "suspend": {}}]},
    }


class Controller:
    """Controller that replays stories; `run` is its main loop."""

    def __init__(self, kube: client.Client) -> None:
        self._client = kube
        self._known: cache.Cache[dict[str, Any]] = cache.Cache()
        self._background = coroutines.BackgroundWork("argo")
        self._started: set[str] = set()

    async def run(self) -> None:
        followed = reflector.Reflector(self._client, WORKFLOWS, dict, self._known, self._changed)
        try:
            await followed.run()
        finally:
            await self._background.stop()

    def _changed(self, key: tuple[str, str], old: Any, new: Any) -> None:
        if new is None or new["metadata"]["uid"] in self._started:
            return
        self._started.add(new["metadata"]["uid"])
        self._background.start(f"workflow {key[1]}", self._tell(key))

    async def _tell(self, key: tuple[str, str]) -> None:
        seen = self._known.get(key)
        story = "" if seen is None else seen["metadata"]["labels"].get("story", COMMON)
        for step in stories()[story]:
            if "await" in step:
                done = functools.partial(self._is_done, key, step["await"])
                await waiting.wait_until_async(done, what=step["await"])
                continue
            status = json.loads(json.dumps(step["status"]).replace(RECORDED, key[1]))
            with contextlib.suppress(errors.NotFound):
                await self._client.merge_patch(WORKFLOWS, key[1], {"status": status}, NS)

    def _is_done(self, key: tuple[str, str], deed: str) -> bool:
        seen = self._known.get(key)
        if seen is None:
            return False
        if deed != "resume":
            return bool(seen["spec"].get("shutdown") == deed)
        nodes = seen["status"]["nodes"].values()
        return all(one["phase"] == "Succeeded" for one in nodes if one["type"] == "Suspend")


async def resume(kube: client.Client, name: str) -> None:
    """Resume the suspended steps of a Workflow, as `argo resume` does."""
    status = (await kube.get(WORKFLOWS, name, NS))["status"]
    nodes = {
        key: {"phase": "Succeeded"}
        for key, node in status["nodes"].items()
        if node["type"] == "Suspend"
    }
    await kube.merge_patch(WORKFLOWS, name, {"status": {"nodes": nodes}}, NS)


@contextlib.asynccontextmanager
async def running(admin: client.Client) -> AsyncIterator[None]:
    """Run a replaying controller inside the block."""
    background = coroutines.BackgroundWork("controlling")
    background.start("argo", Controller(admin).run())
    try:
        yield
    finally:
        await background.stop()


class WorkflowSubject(object_subject.ObjectSubject):
    """Subject of the executor contract: executor `workflow` on the embedded Kubernetes."""

    kind = WORKFLOWS

    def executor(self, kube: client.Client, shared: custom_resource.Shared) -> Any:
        return workflow.WorkflowExecutor(kube, shared)

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        """Return the spec of a task that goes through a story; `script` is the name of the
        story.
        """
        given = object_task.WorkflowTemplate(manifest=workflow_manifest(script))
        return api_task.TaskSpec(workflow=given, **more)
