"""Inputs of the tasks of a step: shared inputs, their own, and the key of a stored result."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import flow_expressions
from kilnwork.api import task as api_task
from kilnwork.jobs.flows import step_inputs

CALL = api_task.TaskTemplate(call=api_task.Call(function="f:f"))


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def inputs_of(**work: Any) -> list[Any]:
    made = step_inputs.StepWork(name="s", template=CALL, **work)
    inputs = step_inputs.Inputs(made)
    return [msgspec.json.decode(inputs.encode_inputs(number)) for number in range(made.size)]


def test_single_task_gets_shared_inputs() -> None:
    assert inputs_of() == [{}]
    assert inputs_of(shared={"rate": raw(3)}) == [{"rate": 3}]


def test_each_item_gets_its_own_inputs() -> None:
    found = inputs_of(
        variable="s",
        items=(raw({"k": "1"}), raw({"k": "2"})),
        shared={"rate": raw(3)},
        own={"all": "${ s }", "text": '${ "n" + s.k }', "more": "${ params.p }"},
        scope={"params": {"p": 9}},
    )
    assert found == [{"rate": 3, "all": {"k": n}, "text": f"n{n}", "more": 9} for n in "12"]


def test_failed_expression_names_the_input() -> None:
    with pytest.raises(flow_expressions.ExpressionError, match=r"with\.x: \$\{ s\.b \}"):
        inputs_of(variable="s", items=(raw({"a": 1}),), own={"x": "${ s.b }"})


def test_memo_keys_differ_between_items_and_versions() -> None:
    def keys(memo: str) -> list[bytes]:
        work = step_inputs.StepWork(
            name="s", template=CALL, variable="s", items=(raw(1), raw(2), raw(1)), memo=memo
        )
        inputs = step_inputs.Inputs(work)
        return [inputs.memo_key(number) for number in range(3)]

    first, second, again = keys("a")
    assert first == again
    assert len({first, second, *keys("b")}) == 4


def test_memo_digest_depends_on_template_and_data() -> None:
    def digest(name: str, *snapshots: tuple[str, str]) -> str:
        return step_inputs.memo_digest(CALL, name, snapshots)

    assert digest("a", ("x", "1"), ("y", "2")) == digest("a", ("y", "2"), ("x", "1"))
    assert len({digest("a"), digest("b"), digest("a", ("x", "1")), digest("a", ("x", "2"))}) == 4


def test_encoded_arguments_merge_inputs_and_kwargs() -> None:
    assert step_inputs.encode_arguments(CALL, b'{"a":1}') == b'[[],{"a":1}]'
    call = api_task.Call(function="f:f", args=(1,), kwargs={"k": 2})
    template = api_task.TaskTemplate(call=call)
    found = msgspec.json.decode(step_inputs.encode_arguments(template, b'{"a":1}'))
    assert found == [[1], {"k": 2, "a": 1}]
