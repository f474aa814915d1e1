"""Recorder of the statuses that Argo's workflow-controller writes, for `support.argo_replay`.

`KUBECONFIG=… python -m hack.argo_traces FILE` needs an API server with a running
workflow-controller and nodes that can run `argoexec`. For each story, a Workflow, it stores the
statuses in their order, and between them what a user did (resume, Stop, Terminate). Run it by hand
to follow another version of Argo. The stored traces are of commit f016ad8 (v4.1.2), with an
embedded API server and its node.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from kilnwork.api import api_resources
from kilnwork.kube import client, config, errors

WORKFLOWS = api_resources.Resource(
    group="argoproj.io",
    version="v1alpha1",
    kind="Workflow",
    plural="workflows",
    singular="workflow",
)
NS = "default"
NAME = "wf-recorded"
"""Of every recorded Workflow, so that it can be replaced."""
LIMIT_S = 120.0
OVER = ("Succeeded", "Failed", "Error")


def _run(script: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "main",
        "container": {"image": "busybox", "command": ["sh", "-c", script]},
        **more,
    }


_GREETING = {
    "parameters": [
        {"name": "greeting", "globalName": "greeting", "valueFrom": {"path": "/tmp/greeting"}}
    ]
}
_ARTIFACT = {"name": "x", "path": "/tmp/x", "s3": {"key": "x"}}
"""From a store that is not configured."""
_STEPS = {"name": "main", "steps": [[{"name": "approve", "template": "wait"}]]}
_SUSPEND = {"name": "wait", "suspend": {}}

STORIES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "success": ([_run("echo hello > /tmp/greeting", outputs=_GREETING)], ()),
    "failure": ([_run("exit 3")], ()),
    "exhausted": ([_run("exit 4", retryStrategy={"limit": "1"})], ()),
    "retried": ([_run("test {{retries}} = 1", retryStrategy={"limit": "2"})], ()),
    "error": ([_run("cat /tmp/x", inputs={"artifacts": [_ARTIFACT]})], ()),
    "invalid": ([{"name": "main", "steps": [[{"name": "a", "template": "nowhere"}]]}], ()),
    "suspend": ([_STEPS, _SUSPEND], ("resume",)),
    "stop": ([_STEPS, _SUSPEND], ("Stop",)),
    "terminate": ([_STEPS, _SUSPEND, {**_SUSPEND, "name": "exit"}], ("Stop", "Terminate")),
}
"""None is stopped while a Pod of it runs: Argo signals process 1 of a container by an exec: that of
the machine on a node of kilnwork, whose containers share its process ids."""


async def record(kube: client.Client, story: str) -> list[dict[str, Any]]:
    """Return the steps of a story: `status` of the Workflow, or `await`: what a user does."""
    templates, deeds = STORIES[story]
    spec: dict[str, Any] = {"entrypoint": "main", "templates": templates}
    if story == "terminate":
        spec["onExit"] = "exit"
    await remove(kube)
    made = await kube.create(WORKFLOWS, {"metadata": {"name": NAME}, "spec": spec}, NS)
    steps: list[dict[str, Any]] = []
    left = list(deeds)
    changes = kube.watch(
        WORKFLOWS, NS, resource_version=made["metadata"]["resourceVersion"], type=dict
    )
    async with asyncio.timeout(LIMIT_S), contextlib.aclosing(changes):
        async for change in changes:
            if change.object is None or change.object["metadata"]["name"] != NAME:
                continue
            status = change.object.get("status") or {}
            if status and (not steps or steps[-1].get("status") != status):
                steps.append({"status": status})
            if left and ready(status, left[0]):
                steps.append({"await": left[0]})
                await do(kube, left.pop(0), status)
            if status.get("phase") in OVER:
                return steps
    raise RuntimeError(f"{story}: the watch ended before the Workflow")


def ready(status: dict[str, Any], deed: str) -> bool:
    """Return whether it is time for that action."""
    nodes = list((status.get("nodes") or {}).values())
    if deed == "resume":
        deed = "Stop"
    waiting = [one for one in nodes if one["type"] == "Suspend" and one["phase"] == "Running"]
    return any(one["name"].endswith(".onExit") is (deed == "Terminate") for one in waiting)


async def do(kube: client.Client, deed: str, status: dict[str, Any]) -> None:
    """Stop or terminate the Workflow, or resume its steps as `argo resume` does
    (workflow/util/util.go).
    """
    if deed != "resume":
        await kube.merge_patch(WORKFLOWS, NAME, {"spec": {"shutdown": deed}}, NS)
        return
    nodes = {
        key: {"phase": "Succeeded", "finishedAt": node["startedAt"]}
        for key, node in status["nodes"].items()
        if node["type"] == "Suspend"
    }
    await kube.merge_patch(WORKFLOWS, NAME, {"status": {"nodes": nodes}}, NS)


async def remove(kube: client.Client) -> None:
    """Wait until there is no Workflow of that name."""
    while True:
        try:
            await kube.delete(WORKFLOWS, NAME, NS, propagation="Foreground")
        except errors.NotFound:
            return
        await asyncio.sleep(0.2)


async def main(path: Path) -> None:
    async with client.Client(config.load(), user_agent="traces") as kube:
        found = {}
        for story in STORIES:
            found[story] = await record(kube, story)
            print(
                story, [step.get("await") or step["status"].get("phase") for step in found[story]]
            )
        await remove(kube)
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
