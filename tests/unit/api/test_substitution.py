"""Substitution: one pass over the strings of a template, without the defects of its
predecessors.
"""

import re
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import json_limits, substitution

TASK = substitution.TaskFacts(
    name="print-3", namespace="press", id="0198-5", run=2, attempt=3, cluster_name="counter"
)
VARIABLES = substitution.task_variables(TASK) | {
    "option.user": "ann",
    "option.copies": 3,
    "option.ratio": 0.5,
    "option.draft": False,
    "option.none": None,
    "option.pages": [1, {"to": 9}],
    "option.image-tag_v1.0": "3.20",
    "job.uid": "j1",
}


def filled(template: Any, **more: Any) -> Any:
    return substitution.substitute(template, {**VARIABLES, **more})


def problems(template: Any, field: str = "spec") -> list[substitution.Problem]:
    with pytest.raises(substitution.InvalidTemplate) as refused:
        substitution.substitute(template, VARIABLES, field=field)
    assert list(refused.value.problems) == substitution.find_problems(template, VARIABLES, field)
    return list(refused.value.problems)


def test_variables_of_a_task() -> None:
    assert substitution.task_variables(TASK) == {
        "task.name": "print-3",
        "task.namespace": "press",
        "task.id": "0198-5",
        "task.run": 2,
        "task.attempt": 3,
        "task.retry_index": 2,
        "task.cluster_name": "counter",
    }
    assert substitution.task_variables(TASK).keys() == substitution.TASK_VARIABLES.keys()


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("alpine:${option.image-tag_v1.0}", "alpine:3.20"),
        ("${task.name}/${task.attempt}", "print-3/3"),
        ("Hello, ${option.user}${option.user}!", "Hello, annann!"),
        ("n=${option.copies} r=${option.ratio} d=${option.draft}", "n=3 r=0.5 d=false"),
        ("p=${option.pages} ${option.none}", 'p=[1,{"to":9}] null'),
        ("", ""),
        (7, 7),
        (None, None),
        ({"a": [{"b": "${job.uid}"}, True]}, {"a": [{"b": "j1"}, True]}),
    ],
)
def test_template_is_substituted(template: Any, result: Any) -> None:
    assert filled(template) == result


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${option.copies}", 3),
        ("${option.ratio}", 0.5),
        ("${option.draft}", False),
        ("${option.none}", None),
        ("${option.pages}", [1, {"to": 9}]),
        ("${option.user}", "ann"),
        (" ${option.copies}", " 3"),
        ("$${option.copies}", "${option.copies}"),
    ],
)
def test_text_of_one_variable_takes_its_type(text: str, value: Any) -> None:
    result = filled({"replicas": text})["replicas"]
    assert (type(result), result) == (type(value), value)


def test_value_is_copied_for_each_place() -> None:
    first, second = filled(["${option.pages}", "${option.pages}"])
    first[1]["to"] = 10
    assert second == VARIABLES["option.pages"] == [1, {"to": 9}]


def test_members_are_written_in_sorted_order() -> None:
    left, right = {"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}
    assert substitution.to_text(left) == substitution.to_text(right) == '{"a":{"c":3,"d":2},"b":1}'


def test_number_in_a_text_field_becomes_text() -> None:
    """An API server refuses a Pod with numbers as arguments."""
    template = {
        "metadata": {"labels": {"copies": "${option.copies}"}},
        "spec": {
            "priority": "${option.copies}",
            "hostname": "${option.copies}",
            "tolerations": [{"key": "${option.copies}", "tolerationSeconds": "${option.copies}"}],
            "containers": [
                {
                    "image": "${option.ratio}",
                    "workingDir": "${option.copies}",
                    "volumeMounts": [
                        {"subPath": "${option.copies}", "readOnly": "${option.draft}"}
                    ],
                    "ports": [{"containerPort": "${option.copies}"}],
                    "args": ["${option.copies}", "${option.draft}"],
                    "env": [{"name": "N", "value": "${option.copies}"}],
                }
            ],
        },
    }
    result = substitution.substitute(template, VARIABLES, text_fields=substitution.TEXT_FIELDS)
    assert result == {
        "metadata": {"labels": {"copies": "3"}},
        "spec": {
            "priority": 3,
            "hostname": "3",
            "tolerations": [{"key": "3", "tolerationSeconds": 3}],
            "containers": [
                {
                    "image": "0.5",
                    "workingDir": "3",
                    "volumeMounts": [{"subPath": "3", "readOnly": False}],
                    "ports": [{"containerPort": 3}],
                    "args": ["3", "false"],
                    "env": [{"name": "N", "value": "3"}],
                }
            ],
        },
    }


# The defects of substitution as Furiko has it (and where ours does otherwise)


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("$${option.user}", "${option.user}"),
        ("$$${option.user}", "$ann"),
        ("$$$${option.user}", "$${option.user}"),
        ("a $${task.name} b ${task.name}", "a ${task.name} b print-3"),
        ("$${option.unknown}", "${option.unknown}"),
        ("$${task.name", "${task.name"),
    ],
)
def test_defect_no_escape(template: str, result: str) -> None:
    assert filled(template) == result


def test_defect_values_are_expanded_again_in_varying_order() -> None:
    """In Furiko a value that contained `${job.uid}` was expanded or not, depending on the order of
    a map.
    """
    values = {"option.a": "${option.b}", "option.b": "${option.a}", "option.c": "$${job.uid}"}
    names = [*values]
    for order in (names, names[::-1]):
        variables = {name: values[name] for name in order} | {"job.uid": "j1"}
        result = substitution.substitute(
            "${option.a} ${option.b} ${option.c} ${job.uid}", variables
        )
        assert result == "${option.b} ${option.a} $${job.uid} j1"


def test_defect_values_that_together_make_a_variable() -> None:
    assert filled("${option.a}${option.b}", **{"option.a": "${task.", "option.b": "name}"}) == (
        "${task.name}"
    )


def test_defect_unknown_names_become_empty() -> None:
    template = {"a": ["${task.nmae}", {"b": "x ${option.y} ${job.name}"}], "c": "${jobconfig.uid}"}
    found = problems(template)
    assert [field for field, _ in found] == ["spec.a[0]", "spec.a[1].b", "spec.a[1].b", "spec.c"]
    assert found[0][1] == (
        "has ${task.nmae}, which is no variable: did you mean ${task.name}? "
        "To keep it as it is, write $${task.nmae}"
    )
    assert "${job.name}" in found[2][1]


def test_defect_only_four_fields_of_containers() -> None:
    everywhere = {
        "metadata": {"labels": {"user": "${option.user}"}, "annotations": {"a": "${option.user}"}},
        "spec": {
            "serviceAccountName": "${option.user}",
            "volumes": [{"configMap": {"name": "${option.user}"}}],
            "initContainers": [{"workingDir": "/home/${option.user}"}],
        },
    }
    assert str(filled(everywhere)).count("ann") == str(everywhere).count("${option.user}") + 1


@pytest.mark.parametrize(
    "text",
    [
        "echo ${HOME} $HOME ${HOME:-/root} $(pwd) $$ $1 ${#a[@]} ${option} ${options.a} ${task}",
        "$${HOME} $$${HOME} $$",
        "${OPTION.user} ${Task.name} ${ task.name} {task.name} $ {task.name}",
        "{{workflow.name}} $(params.a) #{b} %{c}",
        "${",
        "$",
    ],
)
def test_shell_and_other_templates_are_unchanged(text: str) -> None:
    assert filled(text) == text
    assert filled(f"{text} ${{task.name}}") == f"{text} print-3"


@pytest.mark.parametrize(
    "value",
    [
        '"; rm -rf / #',
        "a\nprivileged: true",
        "a' b\" c\\ d",
        "]}, {",
        "${task.name}",
        "$${task.name}",
        "\\1 \\g<0>",
        "{{x}}",
    ],
)
def test_defect_injection_a_value_stays_one_text(value: str) -> None:
    template = {"args": ["-c", "${option.x}", "--x=${option.x}"], "env": []}
    assert filled(template, **{"option.x": value}) == {
        "args": ["-c", value, f"--x={value}"],
        "env": [],
    }


# What is refused


@pytest.mark.parametrize(
    ("template", "field", "problem"),
    [
        ("${task.name", "spec", "has ${task.name without its }; to keep it as it is, write $${"),
        ("${option.a${option.user}}", "spec", "has ${option.a without its }"),
        ("${task.}", "spec", "has ${task.}, which is no variable"),
        ("${task.name }", "spec", "did you mean ${task.name}?"),
        ("${option.user:-x}", "spec", "which is no variable"),
        ("${jobconfig.uid}", "spec", "which is no variable"),
        ({"${task.name}": 1}, "spec.${task.name}", "put the variable into a value"),
        ({"a": {"x ${option.user}": 1}}, "spec.a.x ${option.user}", "keys are not substituted"),
    ],
)
def test_refusal_names_the_place_and_the_remedy(template: Any, field: str, problem: str) -> None:
    ((found, why),) = problems(template)
    assert found == field
    assert problem in why


def test_escaped_variable_in_a_key_is_accepted() -> None:
    assert filled({"$${task.name}": "${HOME}"}) == {"$${task.name}": "${HOME}"}


def test_without_any_variable_all_names_are_unknown() -> None:
    ((_, why),) = substitution.find_problems("${option.a}", ())
    assert "known are none here." in why


def test_number_of_reported_problems_is_limited() -> None:
    found = problems(["${task.x}"] * 1000)
    assert len(found) == substitution.MAX_PROBLEMS + 1
    assert "more than these 100 problems" in found[-1][1]


@pytest.mark.parametrize(
    "template",
    [
        "${option.big}" * 2000,
        ["${option.big} "] * 2000,
        "${option.list}" * 2000,
        ["${option.list}"] * 2000,
        "x" * (json_limits.MAX_SIZE + 1),
    ],
)
def test_result_is_limited_before_it_is_created(template: Any) -> None:
    """Without the limit these results would have 200 MB."""
    values = {"option.big": "x" * 100_000, "option.list": ["x" * 100_000]}
    tracemalloc.start()
    try:
        with pytest.raises(json_limits.LimitExceeded):
            substitution.substitute(template, values)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_depth_is_limited_including_values() -> None:
    deep: Any = "${option.deep}"
    for _ in range(40):
        deep = [deep]
    value: Any = 1
    for _ in range(json_limits.MAX_DEPTH - 40):
        value = [value]
    assert substitution.substitute(deep, {"option.deep": value})
    for template, inner in ((deep, [value]), ([deep], value)):
        with pytest.raises(json_limits.LimitExceeded, match="64 deep"):
            substitution.substitute(template, {"option.deep": inner})


@pytest.mark.parametrize(
    "text", ["$" * 500_000, "${task." * 50_000, "${" * 200_000, "$$${option." * 9000]
)
def test_texts_take_linear_time(text: str) -> None:
    """Quadratic time would be hours; the deadline is generous for a busy machine."""
    started = time.process_time()
    substitution.find_problems(text, VARIABLES)
    assert time.process_time() - started < 20


PIECES = [
    "$",
    "${",
    "{",
    "}",
    "task.",
    "option.",
    "name",
    "user",
    "HOME",
    "${task.name}",
    " ",
    "\n",
    "é",
]
TEXTS = some.lists(some.sampled_from(PIECES), max_size=10).map("".join)


@given(TEXTS)
def test_text_without_variables_is_unchanged(text: str) -> None:
    without = text.replace("{task.", "{tusk.").replace("{option.", "{aption.")
    assert filled(without) == without


@given(TEXTS)
def test_every_text_can_be_escaped(text: str) -> None:
    """Doubling the dollar signs before a brace and one of our prefixes gives the text itself."""
    escaped = re.sub(r"\$+(?=\{(?:task|option|job|jobconfig)\.)", lambda run: run[0] * 2, text)
    assert filled(escaped) == text


@given(TEXTS, some.text(max_size=20) | TEXTS)
def test_value_is_inserted_once_and_unchanged(text: str, value: str) -> None:
    around = text.replace("$", "")
    assert filled([f"{around}${{option.x}}{around}"], **{"option.x": value}) == [
        f"{around}{value}{around}"
    ]


TEMPLATES = some.recursive(
    TEXTS | some.integers() | some.booleans() | some.none(),
    lambda below: some.lists(below, max_size=3) | some.dictionaries(some.sampled_from("ab"), below),
    max_leaves=8,
)


@given(TEMPLATES)
def test_a_template_has_problems_or_a_result_of_its_shape(template: Any) -> None:
    found = substitution.find_problems(template, VARIABLES)
    if found:
        with pytest.raises(substitution.InvalidTemplate):
            filled(template)
        return

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(one) for key, one in value.items()}
        return [shape(one) for one in value] if isinstance(value, list) else type(value)

    # of these, ${task.name} is the only name, and it is a text
    assert shape(filled(template)) == shape(template)
