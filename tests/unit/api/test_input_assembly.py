"""Inputs of a task: the objects that it needs, and the document that its command reads."""

import json
from typing import Any

import pytest

from kilnwork.api import input_assembly, reasons, task


def _object(name: str) -> input_assembly.InputSource:
    return input_assembly.InputSource(input_assembly.InputKind.OBJECT, name)


def _read(spec: task.TaskSpec, values: dict[input_assembly.InputSource, Any]) -> Any:
    document = input_assembly.assemble(spec, values)
    assert document is not None
    return json.loads(document)


def test_task_without_inputs_has_no_document() -> None:
    assert input_assembly.assemble(task.TaskSpec(), {}) is None


def test_input_object_is_called_input() -> None:
    spec = task.TaskSpec(input_object="start")
    assert _read(spec, {_object("start"): {"count": "0"}}) == {"input": {"count": "0"}}


def test_objects_and_results_are_inputs_by_name() -> None:
    spec = task.TaskSpec(
        inputs=(task.TaskInput(name="a", object="x"), task.TaskInput(name="b", task="t"))
    )
    values = {
        _object("x"): [1, 2],
        input_assembly.InputSource(input_assembly.InputKind.TASK, "t"): None,
    }
    assert _read(spec, values) == {"a": [1, 2], "b": None}


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"value": [1, 2]}, "$.value[1]", 2),
        ({"value": None}, "$.value", None),
        ({"a": [{"b": 1}, {"b": 2}]}, "$.a[*].b", 1),
        ("text", "$", "text"),
        ("[1]", "$", "[1]"),
        (7, "$", 7),
    ],
)
def test_path_picks_its_first_match(value: Any, path: str, expected: Any) -> None:
    spec = task.TaskSpec(inputs=(task.TaskInput(name="a", object="x", path=path),))
    assert _read(spec, {_object("x"): value}) == {"a": expected}


@pytest.mark.parametrize(("value", "path"), [({"a": 1}, "$.b"), ("[1]", "$[0]"), (7, "$.a")])
def test_path_without_match_is_an_error(value: Any, path: str) -> None:
    spec = task.TaskSpec(inputs=(task.TaskInput(name="a", object="x", path=path),))
    with pytest.raises(input_assembly.InputError, match="matches nothing") as caught:
        input_assembly.assemble(spec, {_object("x"): value})
    assert caught.value.reason == reasons.Reason.INPUT_PATH_MISSING


@pytest.mark.parametrize(
    "entries",
    [
        (task.TaskInput(name="a"),),
        (task.TaskInput(name="a", object="x", task="t"),),
        (task.TaskInput(name="a", object="x"), task.TaskInput(name="a", task="t")),
        (task.TaskInput(name="a", object="x", path="$.["),),
    ],
)
def test_input_without_a_source_is_invalid(entries: tuple[task.TaskInput, ...]) -> None:
    with pytest.raises(input_assembly.InputError) as caught:
        input_assembly.assemble(task.TaskSpec(inputs=entries), {_object("x"): {}})
    assert caught.value.reason == reasons.Reason.INVALID_SPEC


def test_inputs_too_large_for_a_frame_are_refused_with_their_size() -> None:
    spec = task.TaskSpec(input_object="big")
    with pytest.raises(input_assembly.InputError, match="524288 are allowed") as caught:
        input_assembly.assemble(spec, {_object("big"): "x" * input_assembly.MAX_INPUT_BYTES})
    assert caught.value.reason == reasons.Reason.INPUT_TOO_LARGE
