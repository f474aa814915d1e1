"""Executor `workflow`: an attempt is a Workflow of Argo.

`executors.custom_resource` with `reader`, which knows what Workflows say and how they are ended.
"""

from kilnwork.executors.workflow.reader import WorkflowReader

__all__ = ["WorkflowReader"]
