"""JSON with variables: shared values are substituted once, others at each rendering."""

from typing import Any

import pytest

from kilnwork.api import json_limits, prepared_templates, substitution

SHARED = {"job.name": "nightly", "option.n": 3}


def render(template: Any, *, again: bool = False, texts: bool = False, **later: Any) -> Any:
    names = {f"task.{name}": value for name, value in later.items()}
    preparation = prepared_templates.Preparation(SHARED, names, again=again)
    made = preparation.prepare(template, texts=texts)
    if isinstance(made, prepared_templates.Prepared):
        return made.render(prepared_templates.Rendering(names))
    return made


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("${option.n}", 3),
        ("n=${option.n}", "n=3"),
        (["${task.index_num}", {"a": "${job.name}-${task.index_num}"}], [7, {"a": "nightly-7"}]),
        ("$${job.name}", "${job.name}"),
        ("${HOME}", "${HOME}"),
        (5, 5),
    ],
)
def test_rendered_values(template: Any, made: Any) -> None:
    assert render(template, index_num=7) == made


def test_values_become_text_if_requested() -> None:
    assert render(["${option.n}", "${task.index_num}"], texts=True, index_num=7) == ["3", "7"]


def test_values_are_escaped_for_a_second_pass() -> None:
    made = render("${task.index_item} ${task.attempt}", again=True, index_item="${task.run}")
    assert made == "$${task.run} ${task.attempt}"
    assert prepared_templates.escape_value({"a": ["${task.run}", 1]}) == {"a": ["$${task.run}", 1]}


def test_parts_without_variables_are_the_same_object() -> None:
    fixed = {"a": [1]}
    preparation = prepared_templates.Preparation(SHARED, {"task.index_num"})
    made = preparation.prepare({"fixed": fixed, "n": "${task.index_num}"})
    one, two = (made.render(prepared_templates.Rendering({"task.index_num": n})) for n in (1, 2))
    assert (one["n"], two["n"]) == (1, 2)
    assert one["fixed"] is two["fixed"]


def test_size_of_a_rendering_is_limited() -> None:
    rendering = prepared_templates.Rendering({})
    rendering.spend(substitution.MAX_SIZE)
    with pytest.raises(json_limits.LimitExceeded):
        rendering.spend(1)
