"""Executor `workflow`: an attempt is an Argo Workflow.

It is `executors.custom_resource` with `reader`, which interprets and ends Workflows; `executor`
adds the logs of their steps.
"""

from kilnwork.executors.workflow.executor import WorkflowExecutor

__all__ = ["WorkflowExecutor"]
