"""Fields of tasks that make an object: which are needed, and which may be left out."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import object_task

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_each_condition_of_a_result_is_optional() -> None:
    result = msgspec.convert({}, object_task.ObjectResult)
    assert result.success_condition is result.failure_condition is result.running_condition is None
    assert result.json_path == ""


@pytest.mark.parametrize("fields", [{}, {"manifest": MANIFEST}, {"result": {}}])
def test_a_custom_resource_needs_a_manifest_and_a_result(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, object_task.CustomResource)


@pytest.mark.parametrize("manifest", [MANIFEST, "apiVersion: v1\nkind: ConfigMap\n"])
def test_manifest_may_be_an_object_or_text(manifest: object) -> None:
    found = msgspec.convert({"manifest": manifest, "result": {}}, object_task.CustomResource)
    assert found.manifest == manifest
    assert found.service_account_name == ""


def test_a_workflow_is_a_spec_with_metadata_or_a_manifest() -> None:
    empty = msgspec.convert({}, object_task.WorkflowTemplate)
    assert (empty.spec, empty.metadata, empty.manifest) == (None, {}, None)
    assert (empty.api_version, empty.kind, empty.service_account_name) == ("", "", "")


def test_the_name_of_an_account_is_at_most_253_characters() -> None:
    msgspec.convert({"serviceAccountName": "a" * 253}, object_task.WorkflowTemplate)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"serviceAccountName": "a" * 254}, object_task.WorkflowTemplate)


def test_unknown_field_of_a_workflow_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="steps"):
        msgspec.convert({"steps": []}, object_task.WorkflowTemplate)
