"""The values of a task's environment variables, given the contents of Secrets and ConfigMaps."""

from collections.abc import Mapping

from kilnwork.api import env_sources, task

SECRET = env_sources.VariableSource("Secret", "db")


def _secret(name: str, key: str, *, optional: bool = False) -> task.EnvVar:
    ref = task.KeyRef(name="db", key=key, optional=optional)
    return task.EnvVar(name=name, value_from=task.EnvSource(secret_key_ref=ref))


def _resolved(
    *env: task.EnvVar, data: Mapping[str, bytes] | None
) -> dict[str, str] | env_sources.Unusable:
    assert env_sources.sources(env) == {SECRET}
    return env_sources.resolve(env, {SECRET: data}, "ns")


def test_literal_values_need_no_objects() -> None:
    env = (task.EnvVar(name="A", value="x"),)
    assert env_sources.are_literal(env)
    assert env_sources.sources(env) == frozenset()
    assert env_sources.with_values(env, {}) == {"A": "x"}


def test_values_come_from_the_referenced_keys() -> None:
    env = (task.EnvVar(name="A", value="x"), _secret("B", "b"), _secret("C", "c", optional=True))
    found = _resolved(*env, data={"b": b"secret", "other": b"no"})
    assert found == {"B": "secret"}
    assert env_sources.with_values(env, found) == {"A": "x", "B": "secret"}


def test_missing_value_is_named_without_other_values() -> None:
    cases: list[tuple[Mapping[str, bytes] | None, str]] = [
        (None, "variable B: there is no Secret db in namespace ns"),
        ({}, "variable B: key b of Secret db does not exist"),
        ({"b": b"\xff hidden"}, "variable B: key b of Secret db is no text in UTF-8"),
        ({"b": b"hid\0den"}, "variable B: key b of Secret db must not contain a NUL character"),
    ]
    for data, message in cases:
        assert _resolved(_secret("B", "b"), data=data) == env_sources.Unusable(message)
    assert _resolved(_secret("B", "b", optional=True), data=None) == {}


def test_container_gets_the_reference_instead_of_the_value() -> None:
    made = env_sources.manifest(_secret("B", "b"), "")
    assert made == {"name": "B", "valueFrom": {"secretKeyRef": {"name": "db", "key": "b"}}}
    assert env_sources.manifest(task.EnvVar(name="A"), "x") == {"name": "A", "value": "x"}
