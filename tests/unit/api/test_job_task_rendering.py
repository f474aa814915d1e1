"""Templates of Jobs: one pass for each index, and exact values after the executor's pass."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import (
    http_validation,
    job,
    job_indexes,
    job_task_rendering,
    json_limits,
    object_task_manifests,
    substitution,
    task,
)

SHARED: dict[str, Any] = {
    "job.name": "nightly",
    "job.uid": "j-1",
    "option.user": "ann",
    "option.copies": 3,
    "option.pages": [1, {"to": 9}],
    "option.trap": "${job.uid}${task.attempt}$${task.name}",
}
INDEX = {"task.name": "nightly-7", "task.index_num": 7, "task.index_item": {"file": "${job.uid}"}}
AT_ATTEMPT = {"task.attempt": 2, "task.retry_index": 1, "task.run": 1, "task.id": "0198"}


def rendered(
    template: dict[str, Any],
    shared: dict[str, Any] | None = None,
    *,
    given_inputs: tuple[str, ...] = (),
) -> task.TaskTemplate:
    made = job_task_rendering.Template.of(
        msgspec.convert(template, task.TaskTemplate),
        {**SHARED, **(shared or {})},
        later=INDEX.keys(),
        given_inputs=given_inputs,
    )
    return made.render(INDEX)


def problems(template: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(substitution.InvalidTemplate) as refused:
        rendered(template)
    return list(refused.value.problems)


def at_attempt(template: Any, text_fields: Any = ()) -> Any:
    """Return the template after the executor's pass."""
    return substitution.substitute(template, AT_ATTEMPT, text_fields=text_fields)


def test_command_is_final_after_rendering() -> None:
    made = rendered(
        {
            "image": "alpine:${option.copies}",
            "command": ["sh", "-c"],
            "args": ["echo ${HOME} $${job.uid} $$${job.uid} ${option.trap}", "${task.index_num}"],
            "env": [{"name": "N", "value": "${task.name}"}, {"name": "M", "value": "m"}],
            "inputs": [{"name": "i", "object": "part-${task.index_num}"}],
            "inputObject": "of-${job.name}",
            "clusterName": "fast",
        }
    )
    assert made == task.TaskTemplate(
        image="alpine:3",
        command=("sh", "-c"),
        args=("echo ${HOME} ${job.uid} $j-1 ${job.uid}${task.attempt}$${task.name}", "7"),
        env=(task.EnvVar(name="N", value="nightly-7"), task.EnvVar(name="M", value="m")),
        inputs=(task.TaskInput(name="i", object="part-7"),),
        input_object="of-nightly",
        cluster_name="fast",
    )


def test_cluster_name_of_a_template_is_substituted() -> None:
    assert rendered({"command": ["${task.cluster_name}"], "clusterName": "fast"}).command == (
        "fast",
    )


def test_arguments_of_a_call_keep_the_types_of_values() -> None:
    made = rendered(
        {
            "call": {
                "function": "m:f",
                "args": ["${option.copies}", "n=${option.copies}", "${task.index_item}", 5, None],
                "kwargs": {
                    "pages": ["${option.pages}"],
                    "trap": "${option.trap}",
                    "x": "$${job.x}",
                },
            }
        }
    ).call
    assert made is not None
    assert made.args == (3, "n=3", {"file": "${job.uid}"}, 5, None)
    assert made.kwargs == {
        "pages": [[1, {"to": 9}]],
        "trap": SHARED["option.trap"],
        "x": "${job.x}",
    }


def test_attempt_variables_are_refused_in_final_fields() -> None:
    ((field, problem),) = problems({"command": ["${task.attempt}"]})
    assert field == "spec.template.taskTemplate.command[0]"
    assert "which is no variable" in problem


def test_unknown_variables_are_refused_all_at_once_with_their_places() -> None:
    found = problems(
        {
            "pod": {"spec": {"containers": [{"args": ["${option.usr}", "${task.attempt}"]}]}},
            "inputs": [{"name": "i", "task": "${nope}${job.nope}"}],
            "call": {"function": "m:f", "kwargs": {"${job.uid}": 1, "a": "${jobconfig.name}"}},
        }
    )
    assert [field for field, _ in found] == [
        "spec.template.taskTemplate.inputs[0].task",
        "spec.template.taskTemplate.call.kwargs.${job.uid}",
        "spec.template.taskTemplate.call.kwargs.a",
        "spec.template.taskTemplate.pod.spec.containers[0].args[0]",
    ]
    assert "did you mean ${option.user}?" in found[-1][1]


POD: dict[str, Any] = {
    "metadata": {"labels": {"n": "${task.index_num}"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "alpine",
                "args": ["${task.index_num}", "${task.attempt}/${option.copies}", "${option.trap}"],
                "env": [{"name": "A", "value": "$${task.attempt} $$${task.attempt}"}],
                "ports": [{"containerPort": "${option.copies}"}],
            }
        ]
    },
}


def test_pod_keeps_attempt_variables_and_escapes_values() -> None:
    made = rendered({"pod": POD}).pod
    assert made is not None
    assert made.metadata == {"labels": {"n": "7"}}
    (container,) = made.spec["containers"]
    assert container["args"] == [
        "7",
        "${task.attempt}/3",
        "$${job.uid}$${task.attempt}$$$${task.name}",
    ]
    assert container["env"] == POD["spec"]["containers"][0]["env"]
    assert container["ports"] == [{"containerPort": 3}]
    final = at_attempt(made.spec, substitution.TEXT_FIELDS)["containers"][0]
    assert final["args"] == ["7", "2/3", SHARED["option.trap"]]
    assert final["env"] == [{"name": "A", "value": "${task.attempt} $2"}]


def test_manifest_is_parsed_before_substitution() -> None:
    text = """
        apiVersion: example.com/v1
        kind: Book
        metadata: {name: "${task.name}"}
        spec: {title: "${option.title}", copies: "${option.copies}", again: "${task.retry_index}"}
    """
    made = rendered(
        {"customResource": {"manifest": text, "result": {"successCondition": ".status.done"}}},
        {"option.title": 'a", injected: true, b: "${task.attempt}'},
    ).custom_resource
    assert made is not None
    final = at_attempt(made.manifest, object_task_manifests.TEXT_FIELDS)
    assert final["spec"] == {
        "title": 'a", injected: true, b: "${task.attempt}',
        "copies": 3,
        "again": 1,
    }
    assert final["metadata"] == {"name": "nightly-7"}


def test_manifest_with_invalid_yaml_is_refused_with_its_field() -> None:
    manifest = {"manifest": "{${job.uid}", "result": {}}
    ((field, problem),) = problems({"customResource": manifest})
    assert field == "spec.template.taskTemplate.customResource.manifest"
    assert "is no YAML" in problem


def test_workflow_gets_values_and_keeps_tags_of_argo() -> None:
    made = rendered({"workflow": {"spec": {"a": "{{inputs.x}} ${task.index_num}", "n": "${HOME}"}}})
    assert made.workflow is not None
    assert made.workflow.spec == {"a": "{{inputs.x}} 7", "n": "${HOME}"}


def test_requests_keep_inputs_and_the_url_of_a_callback() -> None:
    request = {
        "method": "POST",
        "url": "http://x/${task.index_num}?by=${task.inputs.results}",
        "headers": [{"name": "To", "value": "${task.callback_url}"}],
        "postData": {"text": "${option.copies}${option.trap}"},
    }
    made = rendered({"http": {"request": request, "callback": {}}}, given_inputs=("results",)).http
    assert made is not None
    values = {**AT_ATTEMPT, "task.inputs.results": "r", "task.callback_url": "http://me"}
    final = http_validation.substitute(made, lambda: values).request
    assert final.url == "http://x/7?by=r"
    assert final.headers[0].value == "http://me"
    assert final.post_data is not None
    assert final.post_data.text == "3" + SHARED["option.trap"]


def test_cancel_request_of_a_function_is_substituted() -> None:
    request = {"method": "POST", "url": "/${task.index_num}"}
    cancel = {"request": {"method": "DELETE", "url": "/${task.id}/${option.user}"}}
    function = {"service": "s", "request": request, "cancel": cancel}
    made = rendered({"function": function}).function
    assert made is not None
    assert made.cancel is not None
    assert (made.request.url, made.cancel.request.url) == ("/7", "/${task.id}/ann")


def test_the_payload_of_an_external_task_keeps_types() -> None:
    payload = ["${task.index_item}", "${option.copies}", "${task.attempt}"]
    made = rendered({"external": {"executor": "e", "payload": payload}}).external
    assert made is not None
    assert made.payload == [{"file": "$${job.uid}"}, 3, "${task.attempt}"]
    assert at_attempt(made.payload) == [{"file": "${job.uid}"}, 3, 2]


def test_shared_variables_take_precedence_over_those_of_an_index() -> None:
    made = rendered({"command": ["${task.index_num}"]}, {"task.index_num": "s"})
    assert made.command == ("s",)


def test_a_template_without_variables_is_the_same_object_for_every_index() -> None:
    template = task.TaskTemplate(command=("echo", "${HOME}"), pod=None)
    made = job_task_rendering.Template.of(template, SHARED, later=INDEX.keys())
    assert made.render({}) is made.render({})
    assert made.render({}) == template


def test_size_of_a_rendering_is_limited() -> None:
    large = "x" * 100_000
    template = {"command": ["${option.large}" * 11]}
    with pytest.raises(json_limits.LimitExceeded, match="once substituted"):
        rendered(template, {"option.large": large})
    made = job_task_rendering.Template.of(
        task.TaskTemplate(command=("${task.index_item}" * 11,)), {}, later=["task.index_item"]
    )
    with pytest.raises(json_limits.LimitExceeded, match="once substituted"):
        made.render({"task.index_item": large})
    assert len(made.render({"task.index_item": "y"}).command[0]) == 11


def test_text_with_many_dollars_takes_linear_time() -> None:
    started = time.perf_counter()
    rendered({"command": ["$" * 200_000 + "{task.index_num}" + "$" * 200_000]})
    assert time.perf_counter() - started < 1


def test_rendering_an_index_is_fast() -> None:
    indexes = job_indexes.IndexSet(job.Parallelism(with_count=100_000))
    template = task.TaskTemplate(command=("sh", "-c", "echo ${task.index_num}", "${task.name}"))
    made = job_task_rendering.Template.of(template, SHARED, later=INDEX.keys())
    best_s = min(_rendering_s(made, indexes) for _ in range(5))
    assert best_s < 100e-6  # 4 µs on a machine with nothing else to do; 15 are aimed at


def _rendering_s(template: job_task_rendering.Template, indexes: job_indexes.IndexSet) -> float:
    started = time.perf_counter()
    for number in range(1000):
        template.render(job_task_rendering.index_variables(indexes, "nightly", number))
    return (time.perf_counter() - started) / 1000


def test_variables_of_an_index() -> None:
    indexes = job_indexes.IndexSet(job.Parallelism(with_keys=("a", "b")))
    assert job_task_rendering.index_variables(indexes, "n", 1) == {
        "task.name": "n-1",
        "task.index_num": 1,
        "task.index_key": "b",
    }


# Values with any text arrive as they are, through one pass and through two.

PIECES = some.sampled_from(
    ["$", "$$", "{", "}", "${", "a", "${job.uid}", "$${task.attempt}", "${task.attempt}",
     "task.attempt}", "{task.attempt}", "${HOME}", "${option.", "job.", "\n", '"', "é"]
)  # fmt: skip
TEXTS = some.lists(PIECES, max_size=6).map("".join) | some.text(max_size=8)
JSON = some.recursive(
    TEXTS | some.none() | some.integers(-9, 9) | some.booleans(),
    lambda below: (
        some.lists(below, max_size=3)
        | some.dictionaries(some.sampled_from(["a", "b"]), below, max_size=2)
    ),
    max_leaves=4,
)
PLACES = some.lists(
    some.sampled_from(["now", "later", "attempt"]) | TEXTS.filter(len).map(lambda text: (text,)),
    max_size=5,
)


def written(value: Any) -> str:
    return substitution.to_text(value)


@given(PLACES, JSON, JSON)
def test_any_value_is_unchanged_after_one_pass(places: list[Any], now: Any, later: Any) -> None:
    kept = [place for place in places if place != "attempt"]
    template, expected = _text_of(kept, now, later)
    shared = {"option.now": now}
    made = job_task_rendering.Template.of(
        task.TaskTemplate(command=("x", template)), shared, later=["task.index_item"]
    )
    assert made.render({"task.index_item": later}).command == ("x", expected)


@given(PLACES, JSON, JSON)
def test_any_value_is_unchanged_after_two_passes(places: list[Any], now: Any, later: Any) -> None:
    template, expected = _text_of(places, now, later)
    external = task.ExternalTask(executor="e", payload={"text": [template, "-"]})
    made = job_task_rendering.Template.of(
        task.TaskTemplate(external=external), {"option.now": now}, later=["task.index_item"]
    ).render({"task.index_item": later})
    assert made.external is not None
    final = at_attempt(made.external.payload)["text"]
    values = {"now": now, "later": later}
    alone = [place for place in places if isinstance(place, tuple) or values.get(place) != ""]
    if len(places) == 1 and not isinstance(places[0], tuple):
        assert final == [{"now": now, "later": later, "attempt": 2}[places[0]], "-"]
    elif alone == ["attempt"]:
        assert final == [2, "-"]
    else:
        assert final == [expected, "-"]


def test_attempt_variable_beside_an_empty_value_keeps_its_type() -> None:
    external = {"executor": "e", "payload": ["${option.none}${task.attempt}"]}
    made = rendered({"external": external}, {"option.none": ""}).external
    assert made is not None
    assert at_attempt(made.payload) == [2]


def _text_of(places: list[Any], now: Any, later: Any) -> tuple[str, str]:
    """Return a template, and the text that it must finally become."""
    names = {"now": "option.now", "later": "task.index_item", "attempt": "task.attempt"}
    values = {"now": now, "later": later, "attempt": 2}
    parts: list[str | substitution.Variable] = []
    expected = ""
    for place in places:
        if isinstance(place, tuple):
            parts.append(place[0])
            expected += place[0]
        else:
            parts.append(substitution.Variable(names[place]))
            expected += written(values[place])
    return substitution.join(parts), expected


@given(TEXTS)
def test_an_escaped_text_is_itself_once_substituted(text: str) -> None:
    escaped = substitution.escape(text)
    assert at_attempt([escaped]) == [text]
    assert "".join(str(part) for part in substitution.split(escaped)) == text


@given(PLACES)
def test_split_and_join_are_inverse(places: list[Any]) -> None:
    text, _ = _text_of(places, "", "")
    assert substitution.join(substitution.split(text)) == text
