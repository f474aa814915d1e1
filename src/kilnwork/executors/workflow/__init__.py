"""Executor `workflow`: an attempt is a Workflow of Argo.

`executors.custom_resource` with `reader`, which knows what Workflows say and how they are ended;
`executor` adds what their steps print.
"""

from kilnwork.executors.workflow.executor import WorkflowExecutor

__all__ = ["WorkflowExecutor"]
