"""The environment variables that a task may have."""

import msgspec
import pytest

from kilnwork.api import env_validation, task


def env(*given: dict[str, object]) -> tuple[task.EnvVar, ...]:
    return msgspec.convert(given, tuple[task.EnvVar, ...])


SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"name": "A", "value": "x"}, []),
        ({"name": "A", "valueFrom": SECRET}, []),
        ({"name": "A", "value": "x\0"}, ["spec.env[0].value"]),
        ({"name": "A", "value": "x", "valueFrom": SECRET}, ["spec.env[0].valueFrom"]),
        ({"name": "A", "valueFrom": {}}, ["spec.env[0].valueFrom"]),
        (
            {"name": "A", "valueFrom": SECRET | {"configMapKeyRef": {"name": "c", "key": "k"}}},
            ["spec.env[0].valueFrom"],
        ),
        (
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "S", "key": "a/b"}}},
            ["spec.env[0].valueFrom.secretKeyRef.name", "spec.env[0].valueFrom.secretKeyRef.key"],
        ),
    ],
)
def test_invalid_variables_are_refused(given: dict[str, object], fields: list[str]) -> None:
    assert [field for field, _ in env_validation.problems(env(given))] == fields


def test_a_call_may_not_set_variables_of_the_worker() -> None:
    given = env({"name": "KILN", "value": "x"}, {"name": "KILN_RUN", "value": "1"})
    assert [field for field, _ in env_validation.call_problems(given)] == ["spec.env[1].name"]
