"""Which fields of a task template may have variables."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import substitution, task, template_fields


def parts(**template: Any) -> list[template_fields.TemplateField]:
    made = msgspec.convert(template, task.TaskTemplate)
    return list(template_fields.parts(made, ("rows",)))


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        ({"command": ["run", "${task.name}"], "args": ["x"]}, ["command"]),
        ({"image": "a:${job.run}", "command": ["x"]}, ["image"]),
        ({"inputObject": "${job.name}"}, ["inputObject"]),
        ({"env": [{"name": "A", "value": "${job.name}"}]}, ["env"]),
        ({"call": {"function": "m:f", "kwargs": {"a": "${job.run}"}}}, ["call"]),
        ({"command": ["run"]}, []),
        (
            {"customResource": {"manifest": "a: ${task.id}", "result": {}}},
            ["customResource.manifest"],
        ),
    ],
)
def test_only_fields_with_variables_are_returned(
    template: dict[str, Any], fields: list[str]
) -> None:
    assert [part.field for part in parts(**template)] == fields


def test_field_inserts_values_into_its_attribute() -> None:
    (env,) = parts(env=[{"name": "A", "value": "${job.name}"}])
    assert env.read("env") == [{"value": "${job.name}"}]
    (made,) = env.build([{"value": "nightly"}])
    assert (made.name, made.value) == ("A", "nightly")


def test_values_of_a_workers_task_are_final() -> None:
    (command,) = parts(command=["${task.name}"])
    assert command.kept == ()
    assert command.build(["nightly-1"]) == ("nightly-1",)


def test_a_pod_keeps_the_variables_of_an_attempt() -> None:
    (pod,) = parts(pod={"spec": {"containers": [{"name": "${task.attempt}"}]}})
    assert pod.kept == template_fields.ATTEMPT_VARIABLES
    assert pod.text_fields == substitution.TEXT_FIELDS


def test_request_keeps_inputs_and_the_callback_url() -> None:
    request = {"method": "GET", "url": "http://a/${input.rows}"}
    (plain,) = parts(http={"request": request})
    (called,) = parts(http={"request": request, "callback": {}})
    assert set(called.kept) - set(plain.kept) == {"task.callback_url"}
    assert {kept for kept in plain.kept if kept.endswith("rows")}
