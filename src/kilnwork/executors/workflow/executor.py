"""An executor of objects that also reads the logs of a Workflow's steps.

Used by `controllers.attempts` through `executors.port`.
"""

from collections.abc import AsyncGenerator

from kilnwork.api import api_resources, pod
from kilnwork.executors import container_logs, custom_resource, port
from kilnwork.executors.workflow import reader
from kilnwork.kube import client

_NODE_NAME = "workflows.argoproj.io/node-name"
"""Annotation of a Pod of a Workflow with the name of its step (workflow/common/common.go)."""

_OF_ARGO = ("init", "wait")
"""Names of the containers in which Argo itself runs."""


class WorkflowExecutor(custom_resource.ObjectExecutor):
    """An executor whose attempts are Argo Workflows; implements `port.Executor`,
    `port.WatchesAttempts` and `port.ReadsLogs`.
    """

    def __init__(self, kube: client.Client, shared: custom_resource.Shared) -> None:
        super().__init__(kube, reader.WorkflowReader(), shared)

    async def outputs(self, attempt: port.Attempt) -> list[port.AttemptOutput]:
        """Return the outputs of the user's containers in the Workflow's Pods, in the order of their
        start.
        """
        seen = await self._find(attempt)
        if seen is None:
            return []
        listed = await self._client.list(
            api_resources.PODS,
            attempt.namespace,
            type=pod.Pod,
            label_selector=self._reads.pods_of(seen),
        )
        found = [
            (container.state.started or container.last_state.started or 0.0, one, container)
            for one in listed.items
            for container in one.status.container_statuses
            if container.name not in _OF_ARGO
            and (container.state.started is not None or container.last_state.started is not None)
        ]
        found.sort(key=lambda each: (each[0], each[1].metadata.name, each[2].name))
        return [
            port.AttemptOutput(
                name=_step(one) if len(found) > 1 else "",
                source=f"{one.metadata.name}/{container.name}",
                life=container.restart_count,
                is_over=container.state.running is None,
            )
            for _, one, container in found
        ]

    def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        name, _, container = output.source.rpartition("/")
        return container_logs.read(self._client, (attempt.namespace, name), container, how)


def _step(of: pod.Pod) -> str:
    """Return the name of a Pod's step without the name of its Workflow, such as `[0].approve`."""
    name = of.metadata.annotations.get(_NODE_NAME, of.metadata.name)
    workflow = of.metadata.labels.get(reader.WORKFLOW_LABEL, "")
    return name.removeprefix(workflow).lstrip(".-") or "main"
