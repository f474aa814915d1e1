"""`spec.customResource` and `spec.workflow` of a Task: an object that others act on, and its end.

Carried out by `executors.custom_resource` and `executors.workflow`. Nothing of the kinds of other
projects is here; manifests are read and checked by `object_manifests`.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import wire

AccountName = Annotated[str, msgspec.Meta(max_length=253)]


class ObjectResult(wire.Wire, frozen=True):
    """What tells the state of a task from its object. Each condition is one rule, or a list of
    rules that must all be true: `{jsonPath, operator, value}`, or a text such as
    `.status.phase == "Succeeded"`."""

    success_condition: Any = None
    """The task has succeeded when this is true."""
    failure_condition: Any = None
    """The task has failed when this is true, even if `successCondition` is true too."""
    running_condition: Any = None
    """The task runs when this is true. Empty: as soon as the object is there, and its controller
    has observed its newest generation."""
    json_path: str = ""
    """JSONPath (RFC 9535) to the result in the object. Empty: the task has no result."""


class CustomResource(wire.Wire, frozen=True):
    """An object of any kind with a namespace."""

    manifest: Any
    """The object, as YAML or JSON in a text, or as it is. Its texts may have variables. Of its
    metadata only labels, annotations and finalizers are taken, and `name` or `generateName` as the
    beginning of the name."""
    result: ObjectResult
    """What tells from the object how the task fares; `successCondition` is needed."""
    service_account_name: AccountName = ""
    """ServiceAccount of the task's namespace with whose rights the object is created, with
    annotation `kilnwork.dev/impersonate: "true"`. Empty: with those of the manager."""


class WorkflowTemplate(wire.Wire, frozen=True):
    """A Workflow of Argo (argoproj.io): `spec` with `metadata`, or `manifest`."""

    spec: dict[str, Any] | None = None
    """WorkflowSpec; what it holds is for Argo to check."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """Labels and annotations of the Workflow, and the beginning of its name."""
    manifest: Any = None
    """The whole Workflow, as YAML or JSON in a text or as it is, instead of `spec`."""
    api_version: str = ""
    """Version of the Workflow's API, if it is given."""
    kind: str = ""
    """`Workflow`, if it is given."""
    service_account_name: AccountName = ""
    """As of `customResource`: with whose rights the Workflow is created, not those of its Pods."""
