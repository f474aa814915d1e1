"""Manifests of tasks that create objects: parsing and refusals."""

from typing import Any

import msgspec
import pytest
import yaml

from kilnwork.api import object_task_manifests, task, task_validation
from support import argo_replay

BOOK = {"apiVersion": "my.custom.domain/v1alpha1", "kind": "Book", "spec": {"chapters": 3}}
BOOK_TEXT = """
apiVersion: my.custom.domain/v1alpha1
kind: Book
spec:
  chapters: 3
"""
RESULT = {"successCondition": {"jsonPath": '.status.phase == "Succeeded"'}}
FLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {"entrypoint": "main"}}


def spec(**given: Any) -> task.TaskSpec:
    return msgspec.convert(given, task.TaskSpec)


def book(manifest: Any, **more: Any) -> task.TaskSpec:
    return spec(customResource={"manifest": manifest, "result": RESULT, **more})


def problems(of: task.TaskSpec) -> dict[str, str]:
    return dict(task_validation.spec_problems(of))


@pytest.mark.parametrize("manifest", [BOOK, BOOK_TEXT, msgspec.json.encode(BOOK).decode()])
def test_manifest_is_an_object_or_yaml_text(manifest: Any) -> None:
    declared = book(manifest)
    assert problems(declared) == {}
    assert object_task_manifests.manifest_of(declared) == (BOOK, "spec.customResource.manifest")
    assert (declared.executor, declared.queue_name) == ("customResource", "executor/customResource")


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        ({"spec": {"entrypoint": "main"}}, {**FLOW, "metadata": {}}),
        ({"manifest": FLOW}, FLOW),
        ({"manifest": "spec: {entrypoint: main}"}, FLOW),
        (
            {**FLOW, "metadata": {"labels": {"a": "b"}}},
            {**FLOW, "metadata": {"labels": {"a": "b"}}},
        ),
        *((flow, flow) for flow in argo_replay.hera_workflows().values()),
    ],
)
def test_a_workflow_may_be_written_in_parts_or_as_a_whole(workflow: Any, expected: Any) -> None:
    declared = spec(workflow=workflow)
    assert problems(declared) == {}
    assert object_task_manifests.manifest_of(declared)[0] == expected
    assert (declared.executor, declared.queue_name) == ("workflow", "executor/workflow")


@pytest.mark.parametrize(
    ("manifest", "field", "says"),
    [
        ("kind: [", "", "is no YAML: did not find"),
        ("a: 1\n---\nb: 2", "", "must hold one object; it holds 2"),
        ("", "", "must hold one object; it holds 0"),
        ("text", "", 'must be an object, or one in YAML; it is "text"'),
        ("a: .nan", "", "has the number nan, which cannot be written as JSON"),
        ("a: !!set {b}", "", "has a set, which cannot be written as JSON"),
        (7, "", "must be an object, or one in YAML; it is 7"),
        ({**BOOK, "kind": ""}, ".kind", "is missing"),
        ({"kind": "Book"}, ".apiVersion", "is missing"),
        ({**BOOK, "apiVersion": "../../api/v1/x?a="}, ".apiVersion", "must be GROUP/VERSION, not"),
        ({**BOOK, "apiVersion": "a.b/v1/x"}, ".apiVersion", "must be GROUP/VERSION, not"),
        ({**BOOK, "kind": "${task.name}"}, ".kind", "may have no variables"),
        ({**BOOK, "metadata": []}, ".metadata", "must be an object"),
        ({**BOOK, "metadata": {"labels": "${task.name}"}}, ".metadata.labels", "an object"),
        ({**BOOK, "metadata": {"finalizers": "x"}}, ".metadata.finalizers", "must be a list"),
        (
            {**BOOK, "metadata": {"ownerReferences": []}},
            ".metadata.ownerReferences",
            "may not be given: the Task owns the object",
        ),
        ({**BOOK, "metadata": {"uid": "x"}}, ".metadata.uid", "only annotations, finalizers,"),
        ({**BOOK, "spec": {"a": ["${task.nome}"]}}, ".spec.a[0]", "did you mean ${task.name}?"),
        ({**BOOK, "spec": {"a": "${task.inputs.x}"}}, ".spec.a", "which is no variable"),
    ],
)
def test_invalid_manifest_is_refused_with_its_field(manifest: Any, field: str, says: str) -> None:
    found = problems(book(manifest))
    assert says in found[f"spec.customResource.manifest{field}"]


def test_expanded_yaml_aliases_are_limited() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "has more than" in problems(book("\n".join(lines)))["spec.customResource"]


def test_timestamps_and_octal_texts_are_read_as_in_kubernetes() -> None:
    body, _ = object_task_manifests.manifest_of(book("a: 2026-01-02\nb: 1:30\nc: on\nd: 0o17"))
    assert body == {"a": "2026-01-02", "b": "1:30", "c": True, "d": 15}


@pytest.mark.parametrize("name", ["a", "input"])
def test_inputs_are_variables(name: str) -> None:
    given = {"inputObject": "o"} if name == "input" else {"inputs": [{"name": "a", "object": "o"}]}
    manifest = {**BOOK, "spec": {"a": f"${{task.inputs.{name}}}"}}
    assert problems(spec(customResource={"manifest": manifest, "result": RESULT}, **given)) == {}


@pytest.mark.parametrize(
    ("result", "field", "says"),
    [
        ({}, "successCondition", "is needed: without it no end is seen"),
        ({"successCondition": "x"}, "successCondition", "must begin with $, . or {"),
        ({**RESULT, "failureCondition": 3}, "", "has a condition that is no rule"),
        ({**RESULT, "runningCondition": {"jsonPath": ".a", "operator": "Like"}},
         "runningCondition.operator", "must be one of"),
        ({**RESULT, "jsonPath": "a b"}, "jsonPath", "is no JSONPath"),
    ],
)  # fmt: skip
def test_rules_are_checked_on_admission(result: Any, field: str, says: str) -> None:
    found = problems(spec(customResource={"manifest": BOOK, "result": result}))
    assert says in found[f"spec.customResource.result.{field}".rstrip(".")]


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"workflow": {}}, "spec.workflow", "must have one of spec and manifest"),
        (
            {"workflow": {"spec": {}, "manifest": FLOW}},
            "spec.workflow",
            "must have one of spec and manifest",
        ),
        (
            {"workflow": {"metadata": {"name": "x"}, "manifest": FLOW}},
            "spec.workflow.manifest",
            "is a whole Workflow",
        ),
        (
            {"workflow": {"manifest": {**BOOK, "kind": "Job"}}},
            "spec.workflow.manifest",
            'must be a Workflow of argoproj.io, not "my.custom.domain/v1alpha1 Job"',
        ),
        ({"workflow": {"manifest": {"kind": "Workflow"}}}, "spec.workflow.manifest.spec", "object"),
        ({"workflow": FLOW, "command": ["x"]}, "spec.workflow", "give workflow without"),
        ({"workflow": FLOW, "env": [{"name": "a"}]}, "spec.env", "is for a command"),
        ({"workflow": FLOW, "image": "x"}, "spec.image", "is for a command"),
    ],
)
def test_workflow_excludes_other_fields_of_a_task(given: Any, field: str, says: str) -> None:
    assert says in problems(spec(**given))[field]


PROPOSED_RESOURCE = """
manifest: |
  apiVersion: my.custom.domain/v1alpha1
  kind: Book
  metadata:
    name: google-sre-book
result:
  successCondition:
    jsonPath: ".status.phase == \\"Succeeded\\""
"""
PROPOSED_WORKFLOW = """
metadata:
  annotations:
    custom-annotation: value
spec:
  entrypoint: main
  templateDefaults:
    timeout: 30s   # timeout value will be applied to all templates
    retryStrategy: # retryStrategy value will be applied to all templates
      limit: "2"
  templates:
    - name: main
      steps:
        - - name: retry-backoff
            template: retry-backoff
    - name: retry-backoff
      container:
        image: python:alpine3.6
        command: ["python", -c]
        args: ["import random; import sys; sys.exit(random.choice([0, 1, 1]))"]
"""
PROPOSED_MANIFEST = """
manifest: |
  apiVersion: argoproj.io/v1alpha1
  kind: Workflow
  spec: {entrypoint: main}
"""


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("customResource", PROPOSED_RESOURCE),
        ("workflow", PROPOSED_WORKFLOW),
        ("workflow", PROPOSED_MANIFEST),
    ],
)
def test_sample_of_the_furiko_proposal_is_accepted(field: str, text: str) -> None:
    declared = spec(**{field: yaml.safe_load(text)})
    assert problems(declared) == {}
    assert declared.executor == field


def test_service_account_name_is_checked() -> None:
    found = problems(book(BOOK, serviceAccountName="a\r\nImpersonate-Group: system:masters"))
    assert "subdomain" in found["spec.customResource.serviceAccountName"]


def test_one_task_is_one_object() -> None:
    both = spec(workflow=FLOW, customResource={"manifest": BOOK, "result": RESULT})
    assert "give workflow without" in problems(both)["spec.workflow"]
