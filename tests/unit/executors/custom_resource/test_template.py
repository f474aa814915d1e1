"""The object of an attempt as it is created: its name, which leads back to the attempt."""

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.api import attempts, object_task, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource import template
from kilnwork.kit import ids

RESULT = object_task.ObjectResult(success_condition=".status.done")
REF = attempts.AttemptRef(ids.TaskId(bytes(15) + b"\1"), 2**31 - 1, 10_000)


def attempt(metadata: dict[str, Any], *, name: str = "t", kind: str = "Book") -> port.Attempt:
    """An attempt of a task whose manifest has these metadata."""
    manifest = {"apiVersion": "my.domain/v1", "kind": kind, "metadata": metadata}
    if kind == "Workflow":
        flow = object_task.WorkflowTemplate(spec={"entrypoint": "main"}, metadata=metadata)
        spec = task.TaskSpec(workflow=flow)
    else:
        given = object_task.CustomResource(manifest=manifest, result=RESULT)
        spec = task.TaskSpec(custom_resource=given)
    return port.Attempt(ref=REF, namespace="ns", name=name, owner_uid="", spec=spec)


# What a Task may have as name of its manifest: the API server never sees it as it is.
names = st.one_of(
    st.text(st.characters(exclude_characters="$", codec="utf-8"), min_size=1, max_size=253),
    st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?-?", fullmatch=True),
)


@hypothesis.given(
    names, st.sampled_from(["name", "generateName"]), st.sampled_from(["Book", "Workflow"])
)
@hypothesis.example("b" * 253, "name", "Book")
@hypothesis.example("a.b.", "generateName", "Workflow")
@hypothesis.example("...", "name", "Book")
def test_a_name_is_a_dns_label_of_at_most_63_characters(name: str, field: str, kind: str) -> None:
    made = template.wanted(attempt({field: name}, kind=kind), "customResource").name
    assert len(made) <= 63
    assert all(c.isascii() and (c.isdigit() or c.islower() or c == "-") for c in made)
    assert made[0] != "-"
    assert made[-1].isalnum()
    held = {"metadata": {"name": made, "finalizers": [template.FINALIZER]}}
    assert template.ref_of(held, "customResource") == REF


@pytest.mark.parametrize(
    ("metadata", "begins"),
    [
        ({}, "the-task-"),
        ({"name": "Odd.Name"}, "odd-name-"),
        ({"generateName": "book-"}, "book-"),
        ({"name": "${task.name}.of.${task.attempt}"}, "the-task-of-1-"),
    ],
)
def test_object_name_has_a_prefix_and_the_attempt(metadata: dict[str, Any], begins: str) -> None:
    made = template.wanted(attempt(metadata, name="the-task"), "customResource").name
    assert made.startswith(begins)
    assert made.endswith(f"-{REF.task.hex()}-{REF.run}-{REF.attempt}")


def test_labels_and_annotations_hold_what_no_name_has_room_for() -> None:
    long = "a." * 126 + "a"
    metadata = template.wanted(attempt({}, name=long), "customResource").body["metadata"]
    assert long in metadata["annotations"].values()
    assert all(len(value) <= 63 for value in metadata["labels"].values())
