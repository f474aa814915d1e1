"""`kiln.manifest` and `kiln.workflow` before anything is submitted: what is refused, and how."""

import json
import math
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import task as api_task
from kilnwork.sdk import templates
from support import argo_replay

BOOK = {
    "apiVersion": "my.custom.domain/v1alpha1",
    "kind": "Book",
    "spec": {"by": "${task.name}", "chapters": "${task.inputs.n}"},
}
RULES: dict[str, Any] = {"success_condition": ".status.done", "json_path": ".status.pages"}
GET = {"method": "GET"}
FLOW: dict[str, Any] = {"spec": {"entrypoint": "main", "templates": []}}
OTHER: Any = {"pod": {}}


class Hera:
    """What Hera's Workflow has."""

    def to_dict(self) -> dict[str, Any]:
        return argo_replay.hera_workflows()["steps"]


@pytest.mark.parametrize("given", [FLOW, Hera(), "spec: {entrypoint: main, templates: []}"])
def test_a_workflow_is_a_mapping_a_text_or_has_to_dict(given: Any) -> None:
    assert kiln.workflow(given)._spec.executor == "workflow"


def test_inputs_of_a_function_are_taken_from_both_requests() -> None:
    begin = {"method": "POST", "url": "/${task.inputs.what}"}
    end = {"method": "DELETE", "url": "/${task.inputs.which}"}
    made = kiln.function({"service": "x", "request": begin, "cancel": {"request": end}})
    assert made.inputs == {"what", "which"}


def test_options_set_fields_of_the_spec() -> None:
    made = kiln.manifest(BOOK, **RULES, retries=2, timeout=5, kill_grace=1, priority=3)
    spec = made.options(retries=4)._spec
    assert spec.retry.max_attempts == 5
    assert spec.timeouts == api_task.Timeouts(running_seconds=5, kill_grace_seconds=1)
    assert (spec.priority, made._spec.retry.max_attempts) == (3, 3)
    assert made.inputs == {"n"}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: kiln.manifest("a: [", **RULES), "is no YAML"),
        (lambda: kiln.manifest({"kind": "Book"}, **RULES), "apiVersion is missing"),
        (lambda: kiln.manifest(BOOK, success_condition="no path"), "successCondition"),
        (lambda: kiln.manifest({"kind": object()}, **RULES), "no YAML and no JSON"),
        (lambda: kiln.workflow({"kind": "Job", "spec": {}}), "must be a Workflow"),
        (lambda: kiln.http({"url": "http://a/"}), "not as spec.http: Object .* `url`"),
        (lambda: kiln.http({"request": {"method": "GET", "url": "x"}}), "spec.http.request.url"),
        (lambda: kiln.function({"request": GET}), "spec.function.service"),
        (lambda: kiln.function({"service": "X", "request": GET}), "spec.function.service"),
        (lambda: kiln.external("a b"), "spec.external.executor"),
        (lambda: kiln.external("a", {"x": "${task.nope}"}), "spec.external.payload"),
        (lambda: kiln.external("a", object()), "no YAML and no JSON"),
        (lambda: kiln.workflow(FLOW, retries=-1), "retries=-1"),
        (lambda: kiln.workflow(FLOW, **OTHER), "no option is called 'pod'"),
    ],
)
def test_template_that_cannot_run_is_refused_at_once(make: Any, says: str) -> None:
    with pytest.raises(kiln.BadOption, match=says):
        make()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, r"missing argument 'n', for \$\{task.inputs.n\}"),
        ({"n": 1, "m": 2}, "unexpected argument 'm'"),
    ],
)
def test_arguments_are_the_variables_of_the_template(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        kiln.manifest(BOOK, **RULES)._check_names(arguments)


def test_item_of_a_map_is_the_single_argument_or_a_mapping() -> None:
    assert kiln.manifest(BOOK, **RULES)._arguments({"n": 1}) == {"n": {"n": 1}}
    two = {**BOOK, "spec": {"a": "${task.inputs.n}", "b": "${task.inputs.m}"}}
    assert kiln.manifest(two, **RULES)._arguments({"n": 1, "m": 2}) == {"n": 1, "m": 2}
    with pytest.raises(TypeError, match="a mapping of its arguments, m, n; it is 3"):
        kiln.manifest(two, **RULES)._arguments(3)


@pytest.mark.parametrize("value", [b"x", math.nan, "\ud800", object(), [object()]])
def test_arguments_are_json(value: Any) -> None:
    with pytest.raises(TypeError, match="argument 'n' is no JSON"):
        kiln.manifest(BOOK, **RULES)._encoded({"n": value})


def test_a_session_of_a_test_runs_functions_only() -> None:
    with kiln.testing.inline(), pytest.raises(kiln.BadOption, match="run Python functions only"):
        kiln.manifest(BOOK, **RULES).submit(n=1)


def test_large_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 65536"):
        kiln.manifest(BOOK, **RULES)._encoded({"n": "x" * 70_000})


def test_a_tuple_is_a_list() -> None:
    encoded = kiln.manifest(BOOK, **RULES)._encoded({"n": (1, [2])})
    assert json.loads(encoded) == {"n": [1, [2]]}


def test_futures_are_found_at_any_depth() -> None:
    class Open(kiln.Future[int]):
        pass

    assert templates._holds_future({"a": [({"b": Open()},)]})
    assert not templates._holds_future({"a": [1, "x"]})
