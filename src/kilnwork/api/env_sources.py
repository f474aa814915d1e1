"""Environment variables of tasks (`env`) whose values come from Secrets and ConfigMaps.

Used by the dispatcher, which reads the objects, by the worker, which requests the values, and by
executors that leave this to Kubernetes. Values of Secrets are never in a spec: only the names of
objects and keys. No I/O. `env_validation` checks what users write.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta, task

NUL = "must not contain a NUL character"
FOUND, MISSING = 200, 404
"""Status codes of the response to a request for values."""


class VariableSource(NamedTuple):
    """A Secret or ConfigMap. `kind`: `Secret` or `ConfigMap`."""

    kind: str
    name: str


class Unusable(NamedTuple):
    """Why the environment variables of a task are not available, for people."""

    message: str


def are_literal(env: Sequence[task.EnvVar]) -> bool:
    """Return whether all values are in the spec."""
    return all(variable.value_from is None for variable in env)


def sources(env: Sequence[task.EnvVar]) -> frozenset[VariableSource]:
    """Return the objects from which valid variables take values."""
    return frozenset(source for _, source, _ in _references(env))


def resolve(
    env: Sequence[task.EnvVar],
    found: Mapping[VariableSource, Mapping[str, bytes] | None],
    namespace: str,
) -> dict[str, str] | Unusable:
    """Return the values that are not in the spec, by variable.

    `found`: the data of each of `sources`, or None if the object does not exist.
    """
    values: dict[str, str] = {}
    for variable, source, ref in _references(env):
        data = found.get(source)
        value = None if data is None else data.get(ref.key)
        if value is None:
            if ref.optional:
                continue
            return _missing_value(variable, source, ref, namespace, exists=data is not None)
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return Unusable(f"{_describe_reference(variable, source, ref)} is no text in UTF-8")
        if "\0" in text:
            return Unusable(f"{_describe_reference(variable, source, ref)} {NUL}")
        values[variable.name] = text
    return values


def decode(body: bytes) -> dict[str, str]:
    """Return the values in a response with status FOUND."""
    return msgspec.json.decode(body, type=dict[str, str])


def refusal(body: bytes) -> str:
    """Return the message in a response with any other status."""
    return str(msgspec.json.decode(body, type=dict[str, Any]).get("message", ""))


def with_values(env: Sequence[task.EnvVar], values: Mapping[str, str]) -> dict[str, str]:
    """Return all variables: those of the spec, completed with the values that were read."""
    made: dict[str, str] = {}
    for variable in env:
        if variable.value_from is None:
            made[variable.name] = variable.value
        elif variable.name in values:
            made[variable.name] = values[variable.name]
    return made


def manifest(variable: task.EnvVar, value: str) -> meta.JsonObject:
    """Return a variable in the form of a container's `env`. `value`: used for a literal
    variable."""
    if variable.value_from is None:
        return {"name": variable.name, "value": value}
    return {"name": variable.name, "valueFrom": msgspec.to_builtins(variable.value_from)}


def references_of(source: task.EnvSource) -> dict[str, task.KeyRef]:
    """Return the references that a source has, by field; a valid source has exactly one."""
    each = {"secretKeyRef": source.secret_key_ref, "configMapKeyRef": source.config_map_key_ref}
    return {field: ref for field, ref in each.items() if ref is not None}


_KINDS = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}


def _references(
    env: Iterable[task.EnvVar],
) -> Iterator[tuple[task.EnvVar, VariableSource, task.KeyRef]]:
    for variable in env:
        if variable.value_from is not None:
            for field, ref in references_of(variable.value_from).items():
                yield variable, VariableSource(_KINDS[field], ref.name), ref


def _describe_reference(variable: task.EnvVar, source: VariableSource, ref: task.KeyRef) -> str:
    return f"variable {variable.name}: key {ref.key} of {source.kind} {source.name}"


def _missing_value(
    variable: task.EnvVar, source: VariableSource, ref: task.KeyRef, namespace: str, *, exists: bool
) -> Unusable:
    if exists:
        return Unusable(f"{_describe_reference(variable, source, ref)} does not exist")
    text = f"variable {variable.name}: there is no {source.kind} {source.name}"
    return Unusable(f"{text} in namespace {namespace}")
