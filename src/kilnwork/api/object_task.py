"""`spec.customResource` and `spec.workflow` of a Task: an object that another controller acts on.

Carried out by `executors.custom_resource` and `executors.workflow`. Nothing here depends on the
kinds of other projects; manifests are parsed and checked by `object_task_manifests`.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct

AccountName = Annotated[str, msgspec.Meta(max_length=253)]


class ObjectResult(base_struct.Wire, frozen=True):
    """Rules that derive the state of a task from its object. Each condition is one rule, or a list
    of rules that must all be true: `{jsonPath, operator, value}`, or a string such as
    `.status.phase == "Succeeded"`."""

    success_condition: Any = None
    """Condition for success. Required."""
    failure_condition: Any = None
    """Condition for failure. It takes precedence over `successCondition`."""
    running_condition: Any = None
    """Condition for the state running. Unset: the task is running as soon as the object exists and
    its controller has observed its newest generation."""
    json_path: str = ""
    """JSONPath (RFC 9535) to the result within the object. Empty: the task has no result."""


class CustomResource(base_struct.Wire, frozen=True):
    """A namespaced object of any kind."""

    manifest: Any
    """The object, as an object or as a string in YAML or JSON. Strings in it may contain
    variables. Of its metadata only labels, annotations and finalizers are used, and `name` or
    `generateName` as the prefix of the name."""
    result: ObjectResult
    """Rules that derive the state of the task from the object. `successCondition` is required."""
    service_account_name: AccountName = ""
    """ServiceAccount in the task's namespace with whose rights the object is created. It must have
    the annotation `kilnwork.dev/impersonate: "true"`. Empty: the rights of the manager."""


class WorkflowTemplate(base_struct.Wire, frozen=True):
    """An Argo Workflow (argoproj.io): `spec` with `metadata`, or `manifest`."""

    spec: dict[str, Any] | None = None
    """WorkflowSpec. Its content is validated by Argo. Exactly one of `spec` and `manifest` must be
    set."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """Labels and annotations of the Workflow, and the prefix of its name."""
    manifest: Any = None
    """The whole Workflow, as an object or as a string in YAML or JSON, instead of `spec`."""
    api_version: str = ""
    """API version of the Workflow. Empty: `argoproj.io/v1alpha1`."""
    kind: str = ""
    """Kind of the object: `Workflow`, or empty, which means the same."""
    service_account_name: AccountName = ""
    """ServiceAccount with whose rights the Workflow is created, as for `customResource`; not the
    account of its Pods."""
