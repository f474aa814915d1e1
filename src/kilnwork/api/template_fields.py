"""The fields of a task template that may have variables, and how values are put in there.

Part of `job_templates`. Fields of a worker's task are final once a task is made: nothing replaces
variables in them again. Of other executors the texts have a second pass at each attempt.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from kilnwork.api import (
    http_task,
    inputs,
    object_manifests,
    substitution,
    task,
)

ATTEMPT_VARIABLES = frozenset(
    {"task.id", "task.run", "task.attempt", "task.retry_index", "task.cluster_name"}
)
"""Variables of a task that its executor has values for, at each attempt."""


class SecondPass(msgspec.Struct, frozen=True, kw_only=True):
    """What the executor does with the texts of a field, at each attempt."""

    kept: Collection[str]
    """Names of the variables that it replaces."""
    text_fields: Collection[str] = ()
    """Names of fields below which values become texts, in the first pass too."""


class TemplateField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a template whose texts may have variables."""

    attribute: str
    """Name of the attribute of the template."""
    field: str
    """Path of what `read` returns below the template."""
    given: Any
    """Value of the attribute."""
    read: Callable[[str], Any]
    """Return what is rendered, as JSON; the path of the field is for errors. Raises
    InvalidManifest, or LimitExceeded."""
    build: Callable[[Any], Any]
    """Make a value of the attribute of what was rendered."""
    texts: bool = False
    """Whether all values become texts."""
    second_pass: SecondPass | None = None
    """None where a value is final."""

    @property
    def kept(self) -> Collection[str]:
        """Names of variables that stay for the second pass."""
        return self.second_pass.kept if self.second_pass is not None else ()

    @property
    def text_fields(self) -> Collection[str]:
        """Names of fields below which values become texts."""
        return self.second_pass.text_fields if self.second_pass is not None else ()


def parts(
    template: task.TaskTemplate, given_inputs: Collection[str] = ()
) -> Iterator[TemplateField]:
    """Return the fields that have variables, of all that may have some. `given_inputs`: names of
    inputs that tasks get besides those of the template."""
    return (part for part in _all_parts(template, given_inputs) if _has_references(part.given))


def _all_parts(
    template: task.TaskTemplate, given_inputs: Collection[str]
) -> Iterator[TemplateField]:
    yield from _worker_parts(template)
    if template.call is not None:
        yield _part(template, "call", _arguments, _with_arguments)
    if template.pod is not None:
        # the Pod has inputs as files, not as variables
        yield _part(
            template,
            "pod",
            lambda pod: {"metadata": pod.metadata, "spec": pod.spec},
            _replaced,
            second_pass=SecondPass(kept=ATTEMPT_VARIABLES, text_fields=substitution.TEXT_FIELDS),
        )
    kept = {*ATTEMPT_VARIABLES, *_input_variables(template, given_inputs)}
    if template.custom_resource is not None or template.workflow is not None:
        yield _manifest_part(template, kept)
    if template.external is not None:
        yield _part(
            template,
            "external",
            lambda given: {"payload": given.payload},
            _replaced,
            second_pass=SecondPass(kept=kept),
        )
    for name in ("http", "function"):
        if (sent := getattr(template, name)) is not None:
            own = {http_task.CALLBACK_URL} if sent.awaited is not None else set()
            second_pass = SecondPass(kept={*kept, *own})
            yield _part(template, name, _requests, _sent, texts=True, second_pass=second_pass)


def _worker_parts(template: task.TaskTemplate) -> Iterator[TemplateField]:
    """Yield the fields whose values are final: nothing substitutes them again."""
    for name in ("command", "args"):
        yield _part(template, name, list, lambda _, made: tuple(made), texts=True)
    for name in ("image", "input_object"):
        if getattr(template, name):
            yield _part(template, name, lambda text: text, lambda _, made: made, texts=True)
    for name, fields in (("env", ("value",)), ("inputs", ("object", "task"))):
        if getattr(template, name):
            yield _part(template, name, _items(fields), _replaced_items, texts=True)


def _part(
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
"""Names of attributes in JSON where they differ."""


def _input_variables(template: task.TaskTemplate, given_inputs: Iterable[str]) -> list[str]:
    named = [one.name for one in template.inputs]
    if template.input_object is not None:
        named.append(inputs.FIRST_INPUT)
    return substitution.input_names([*named, *given_inputs])


def _items(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda items: [{name: getattr(item, name) for name in fields} for item in items]


def _replaced_items(given: Any, made: Any) -> Any:
    return tuple(
        msgspec.structs.replace(item, **fields) for item, fields in zip(given, made, strict=True)
    )


def _replaced(given: Any, made: Any) -> Any:
    return msgspec.structs.replace(given, **made)


def _arguments(call: task.Call) -> Any:
    return _plain({"args": call.args, "kwargs": call.kwargs})


def _with_arguments(given: task.Call, made: Any) -> task.Call:
    return msgspec.structs.replace(given, args=tuple(made["args"]), kwargs=made["kwargs"])


def _requests(sent: Any) -> Any:
    """Return the requests of an HTTP task as parsed JSON."""
    found = {"request": _plain(sent.request)}
    if getattr(sent, "cancel", None) is not None:
        found["cancel"] = {"request": _plain(sent.cancel.request)}
    return found


def _sent(given: Any, made: Any) -> Any:
    changed = {"request": msgspec.convert(made["request"], type(given.request))}
    if "cancel" in made:
        request = msgspec.convert(made["cancel"]["request"], type(given.cancel.request))
        changed["cancel"] = msgspec.structs.replace(given.cancel, request=request)
    return msgspec.structs.replace(given, **changed)


def _manifest_part(template: task.TaskTemplate, kept: Collection[str]) -> TemplateField:
    """Return a manifest, parsed before variables are put in, so that no value becomes structure."""
    attribute = "workflow" if template.custom_resource is None else "custom_resource"
    given = getattr(template, attribute)
    second_pass = SecondPass(kept=kept, text_fields=object_manifests.TEXT_FIELDS)
    if given.manifest is None:
        return _part(
            template,
            attribute,
            lambda given: {"metadata": given.metadata, "spec": given.spec},
            _replaced,
            second_pass=second_pass,
        )
    return TemplateField(
        attribute=attribute,
        field=f"{_FIELDS.get(attribute, attribute)}.manifest",
        given=given,
        read=lambda field: object_manifests.parse(given.manifest, field),
        build=lambda made: msgspec.structs.replace(given, manifest=made),
        second_pass=second_pass,
    )


def _plain(value: Any) -> Any:
    """Return a value as parsed JSON: lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _has_references(value: Any) -> bool:
    """Return whether there may be variables in it; most templates have few."""
    return b"${" in msgspec.json.encode(value)
