"""The fields of a task template that may contain variables, and how values are inserted.

Part of `job_task_rendering`. The fields of a worker's task are final once a task is created:
variables in them are not replaced again. For other executors the strings have a second pass at each
attempt.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from kilnwork.api import (
    http_task,
    input_assembly,
    object_task_manifests,
    substitution,
    task,
)

ATTEMPT_VARIABLES = frozenset(
    {"task.id", "task.run", "task.attempt", "task.retry_index", "task.cluster_name"}
)
"""Variables whose values the executor knows at each attempt."""


class SecondPass(msgspec.Struct, frozen=True, kw_only=True):
    """The second substitution of a field's strings, by the executor at each attempt."""

    kept: Collection[str]
    """Names of the variables that the executor replaces."""
    text_fields: Collection[str] = ()
    """Names of fields below which values become text, in the first pass too."""


class TemplateField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a template whose strings may contain variables."""

    attribute: str
    """Name of the attribute of the template."""
    field: str
    """Path of the value returned by `read`, relative to the template."""
    given: Any
    """The value of the attribute."""
    read: Callable[[str], Any]
    """Returns the JSON to render; the argument is the path of the field for errors. Raises
    InvalidManifest, or LimitExceeded."""
    build: Callable[[Any], Any]
    """Converts rendered JSON to a value of the attribute."""
    texts: bool = False
    """Whether all values become text."""
    second_pass: SecondPass | None = None
    """None if the values are final."""

    @property
    def kept(self) -> Collection[str]:
        """Names of variables that are kept for the second pass."""
        return self.second_pass.kept if self.second_pass is not None else ()

    @property
    def text_fields(self) -> Collection[str]:
        """Names of fields below which values become text."""
        return self.second_pass.text_fields if self.second_pass is not None else ()


def fields_with_variables(
    template: task.TaskTemplate, given_inputs: Collection[str] = ()
) -> Iterator[TemplateField]:
    """Return the fields that contain variables.

    `given_inputs`: names of inputs that tasks get in addition to those of the template.
    """
    return (part for part in _all_fields(template, given_inputs) if _has_references(part.given))


def _all_fields(
    template: task.TaskTemplate, given_inputs: Collection[str]
) -> Iterator[TemplateField]:
    yield from _worker_fields(template)
    if template.call is not None:
        yield _make_field(template, "call", _arguments, _with_arguments)
    if template.pod is not None:
        # the Pod has its inputs as files, not as variables
        yield _make_field(
            template,
            "pod",
            lambda pod: {"metadata": pod.metadata, "spec": pod.spec},
            _replace_value,
            second_pass=SecondPass(kept=ATTEMPT_VARIABLES, text_fields=substitution.TEXT_FIELDS),
        )
    kept_variables = {*ATTEMPT_VARIABLES, *_input_variables(template, given_inputs)}
    if template.custom_resource is not None or template.workflow is not None:
        yield _manifest_field(template, kept_variables)
    if template.external is not None:
        yield _make_field(
            template,
            "external",
            lambda given: {"payload": given.payload},
            _replace_value,
            second_pass=SecondPass(kept=kept_variables),
        )
    for name in ("http", "function"):
        if (sent := getattr(template, name)) is not None:
            own = {http_task.CALLBACK_URL} if sent.callback_settings is not None else set()
            second_pass = SecondPass(kept={*kept_variables, *own})
            yield _make_field(
                template, name, _requests, _with_requests, texts=True, second_pass=second_pass
            )


def _worker_fields(template: task.TaskTemplate) -> Iterator[TemplateField]:
    """Yield the fields whose values are final: they are not substituted again."""
    for name in ("command", "args"):
        yield _make_field(template, name, list, lambda _, made: tuple(made), texts=True)
    for name in ("image", "input_object"):
        if getattr(template, name):
            yield _make_field(template, name, lambda text: text, lambda _, made: made, texts=True)
    for name, fields in (("env", ("value",)), ("inputs", ("object", "task"))):
        if getattr(template, name):
            yield _make_field(template, name, _items(fields), _replace_items, texts=True)


def _make_field(
    template: task.TaskTemplate,
    attribute: str,
    read: Callable[[Any], Any],
    build: Callable[[Any, Any], Any],
    *,
    texts: bool = False,
    second_pass: SecondPass | None = None,
) -> TemplateField:
    given = getattr(template, attribute)
    return TemplateField(
        attribute=attribute,
        field=_FIELDS.get(attribute, attribute),
        given=given,
        read=lambda field: read(given),
        build=lambda made: build(given, made),
        texts=texts,
        second_pass=second_pass,
    )


_FIELDS = {"input_object": "inputObject", "custom_resource": "customResource"}
"""JSON names of attributes, where they differ."""


def _input_variables(template: task.TaskTemplate, given_inputs: Iterable[str]) -> list[str]:
    named = [one.name for one in template.inputs]
    if template.input_object is not None:
        named.append(input_assembly.FIRST_INPUT)
    return substitution.input_names([*named, *given_inputs])


def _items(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda items: [{name: getattr(item, name) for name in fields} for item in items]


def _replace_items(given: Any, made: Any) -> Any:
    return tuple(
        msgspec.structs.replace(item, **fields) for item, fields in zip(given, made, strict=True)
    )


def _replace_value(given: Any, made: Any) -> Any:
    return msgspec.structs.replace(given, **made)


def _arguments(call: task.Call) -> Any:
    return _to_json({"args": call.args, "kwargs": call.kwargs})


def _with_arguments(given: task.Call, made: Any) -> task.Call:
    return msgspec.structs.replace(given, args=tuple(made["args"]), kwargs=made["kwargs"])


def _requests(sent: Any) -> Any:
    """Return the requests of an HTTP task as parsed JSON."""
    found = {"request": _to_json(sent.request)}
    if getattr(sent, "cancel", None) is not None:
        found["cancel"] = {"request": _to_json(sent.cancel.request)}
    return found


def _with_requests(given: Any, made: Any) -> Any:
    changed = {"request": msgspec.convert(made["request"], type(given.request))}
    if "cancel" in made:
        request = msgspec.convert(made["cancel"]["request"], type(given.cancel.request))
        changed["cancel"] = msgspec.structs.replace(given.cancel, request=request)
    return msgspec.structs.replace(given, **changed)


def _manifest_field(template: task.TaskTemplate, kept: Collection[str]) -> TemplateField:
    """Return the field of a manifest, which is parsed before variables are replaced, so that no
    value becomes structure."""
    attribute = "workflow" if template.custom_resource is None else "custom_resource"
    given = getattr(template, attribute)
    second_pass = SecondPass(kept=kept, text_fields=object_task_manifests.TEXT_FIELDS)
    if given.manifest is None:
        return _make_field(
            template,
            attribute,
            lambda given: {"metadata": given.metadata, "spec": given.spec},
            _replace_value,
            second_pass=second_pass,
        )
    return TemplateField(
        attribute=attribute,
        field=f"{_FIELDS.get(attribute, attribute)}.manifest",
        given=given,
        read=lambda field: object_task_manifests.parse(given.manifest, field),
        build=lambda made: msgspec.structs.replace(given, manifest=made),
        second_pass=second_pass,
    )


def _to_json(value: Any) -> Any:
    """Return a value as parsed JSON: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _has_references(value: Any) -> bool:
    """Return whether a value may contain variables; most templates have few."""
    return b"${" in msgspec.json.encode(value)
