"""Tasks that other systems carry out: `kiln.manifest`, `kiln.workflow`, `kiln.http` and others.

Used by programs, beside `sdk.task`. These functions return a `TemplateTask`. The arguments of a
call replace the template's variables `${task.inputs.NAME}` when it starts. A call whose arguments
contain futures is submitted by a call of `submit_template` on a worker, which gets their values;
its result is that of the call it submits.
"""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar, Unpack, cast, overload

import msgspec

from kilnwork.api import attempts, calls, http_task, knative_task, object_task, task_validation
from kilnwork.api import task as api_task
from kilnwork.sdk import call_map, errors, futures, session
from kilnwork.sdk import options as sdk_options
from kilnwork.sdk import task as sdk_task

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

KILL_GRACE_S = 30.0
"""Default time in seconds between the request to stop and the kill, as for commands: controllers
are slower than processes."""

_DEFAULTS = sdk_options.Options(kill_grace=KILL_GRACE_S)


class TypedFuture(futures.CallFuture[R_co]):
    """A future whose result is checked and converted to a type when it is first read."""

    __slots__ = ("wanted",)

    wanted: Any

    def _compute(self, end: calls.CallResult | int | None) -> tuple[int, Any]:
        opened, value = super()._compute(end)
        if opened != futures.VALUE or self.wanted is Any:
            return opened, value
        try:
            return opened, msgspec.convert(value, self.wanted)
        except msgspec.ValidationError as error:
            return futures.ERROR, TypeError(f"the result of {self!r} is no {self.wanted}: {error}")


class TemplateTask(Generic[R_co]):
    """A task that another system carries out, not a function of this program.

    `inputs`: the names of its arguments, which are variables of its template.
    """

    def __init__(
        self, runs: Mapping[str, Any], given: Mapping[str, Any], *, of: str, result: Any
    ) -> None:
        self._of = of
        self._runs = dict(runs)
        self._wanted = result
        self._name: str | None = None
        self._key: str | None = None
        self._choose(_DEFAULTS, given)
        problems = task_validation.spec_problems(self._spec, given_inputs=None)
        if problems:
            raise errors.BadOption(
                f"{of}: " + "; ".join(f"{field} {problem}" for field, problem in problems)
            )
        self.inputs = task_validation.template_inputs(self._spec)

    def __call__(self, /, **arguments: Any) -> R_co:
        """Submit a call and wait for its result."""
        return self.submit(**arguments).result()

    def submit(self, /, **arguments: Any) -> futures.Future[R_co]:
        """Submit a call with these arguments to the current session; return its future at once.

        Arguments are JSON, or contain futures at any depth: then the call starts when all of them
        have finished and a worker has inserted their values. Raises TypeError for arguments that
        are missing, are no JSON, or for which the template has no variable; ValueError if they are
        larger than 64 KiB together; NoSession; and BadOption in a session that runs only Python
        functions, such as that of `kiln.start`.
        """
        return self._send(self._session(), arguments, self._key)

    def map(
        self,
        iterable: Iterable[Any],
        /,
        *,
        key: Callable[[Any], str] | None = None,
        max_in_flight: int | None = None,
        max_failed: int | None = None,
        fail_fast: bool = False,
    ) -> futures.Futures[R_co]:
        """Submit a call for each item, as `Task.map` does.

        An item is a mapping of arguments; for a template with a single input it is the value of
        that input.
        """
        here = self._session()
        limits = call_map.Limits(
            of=self._of,
            max_in_flight=max_in_flight,
            max_failed=0 if fail_fast and max_failed is None else max_failed,
        )

        def submit(row: tuple[Any]) -> futures.CallFuture[R_co]:
            item = row[0]
            named = self._key
            if key is not None:
                named = sdk_options.checked("key", key(item), of=self._of)
            return self._send(here, self._arguments(item), named)

        return call_map.run(
            zip(iterable, strict=True), submit, limits, in_background=not here.in_slot
        )

    def _session(self) -> session.Session:
        """Return the current session.

        Raises NoSession, and BadOption for a session that runs only Python functions.
        """
        here = session.current()
        if here.one_cluster or here.functions_only:
            raise errors.BadOption(
                f"{self._of}: kiln.start() and kiln.testing.inline() run Python functions only: "
                "use kiln.connect() to a `kiln up` or a manager in a cluster, or a task function "
                "in its place"
            )
        return here

    def _send(
        self, here: session.Session, arguments: Mapping[str, Any], key: str | None
    ) -> futures.CallFuture[R_co]:
        self._check_names(arguments)
        if _holds_future(arguments):
            return self._submit_later(here, arguments, key)
        data = attempts.Payload(attempts.JSON, self._encoded(arguments))
        while True:
            try:
                future = here.submit(
                    here.template(self._spec),
                    function=self._spec.function_name,
                    arguments=data,
                    name=self._name,
                    key=key,
                    make=TypedFuture,
                )
            except session.TemplateForgotten:
                continue
            return self._typed(future)

    def options(self, **changes: Unpack[sdk_options.TemplateChanges]) -> Self:
        """Return a copy with other options; see `options.TemplateChanges`. Raises BadOption."""
        other = copy.copy(self)
        other._choose(self._options, changes)
        return other

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._of}({', '.join(sorted(self.inputs))})>"

    def _choose(self, before: sdk_options.Options, changes: Mapping[str, Any]) -> None:
        left = dict(changes)
        for option in sdk_options.PER_CALL & left.keys():
            value = sdk_options.checked(option, left.pop(option), of=self._of)
            setattr(self, f"_{option}", value)
        for option in left.keys() - sdk_options.TemplateChanges.__annotations__.keys():
            known = ", ".join(sdk_options.TemplateChanges.__annotations__)
            raise errors.BadOption(f"{self._of}: no option is called {option!r}: use {known}")
        self._options = sdk_options.changed(before, left, of=self._of)
        self._spec = sdk_options.spec_of(self._options, **self._runs)

    def _arguments(self, item: Any) -> Mapping[str, Any]:
        """Return the arguments of a call of `map` for an item."""
        if len(self.inputs) == 1:
            return dict.fromkeys(self.inputs, item)
        if isinstance(item, Mapping):
            return item
        raise TypeError(
            f"{self._of}: an item must be a mapping of its arguments, "
            f"{', '.join(sorted(self.inputs)) or 'of which it has none'}; it is {item!r}"
        )

    def _check_names(self, arguments: Mapping[str, Any]) -> None:
        for name in sorted(arguments.keys() - self.inputs):
            raise TypeError(
                f"{self._of}: unexpected argument {name!r}: nothing in the template is "
                f"${{task.inputs.{name}}}; it has {', '.join(sorted(self.inputs)) or 'no inputs'}"
            )
        for name in sorted(self.inputs - arguments.keys()):
            raise TypeError(f"{self._of}: missing argument {name!r}, for ${{task.inputs.{name}}}")

    def _encoded(self, arguments: Mapping[str, Any]) -> bytes:
        """Return the arguments as a JSON object.

        Raises TypeError, and ValueError if the object is too large.
        """
        encoded = {name: self._json(name, value) for name, value in arguments.items()}
        data = msgspec.json.encode(encoded)
        if len(data) > attempts.MAX_INLINE_BYTES:
            raise ValueError(
                f"{self._of}: its arguments take {len(data)} bytes, more than "
                f"{attempts.MAX_INLINE_BYTES}: put large values where it can read them"
            )
        return data

    def _json(self, name: str, value: Any) -> msgspec.Raw:
        """Return a value as JSON: tuples become lists, dates and times become texts."""
        try:
            plain = msgspec.to_builtins(value, builtin_types=_BYTES, str_keys=True)
            text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
            return msgspec.Raw(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{self._of}: argument {name!r} is no JSON: {error}") from None

    def _submit_later(
        self, here: session.Session, arguments: Mapping[str, Any], key: str | None
    ) -> futures.CallFuture[R_co]:
        relay = _RELAY.options(
            name=self._name, cluster=self._options.cluster, priority=self._options.priority
        )
        return self._typed(relay._send(here, (self.options(key=None), dict(arguments)), {}, key))

    def _typed(self, future: futures.CallFuture[Any]) -> futures.CallFuture[R_co]:
        typed = cast(TypedFuture[R_co], future)
        typed.wanted = self._wanted
        return typed


_BYTES = (bytes, bytearray, memoryview)
"""Types that are not converted, and are therefore refused: JSON has no bytes."""


def submit_template(of: TemplateTask[Any], arguments: dict[str, Any]) -> futures.Future[Any]:
    """Submit a call of the template; runs on a worker, where futures are replaced by their
    values.
    """
    return of.submit(**arguments)


class _Relay(sdk_task.Task[Any, Any]):
    _future = TypedFuture


_RELAY = _Relay(submit_template, sdk_options.Options())


def _holds_future(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_future(each) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_holds_future(each) for each in value)
    return isinstance(value, futures.Future)


@overload
def workflow(
    manifest: Any,
    /,
    *,
    service_account_name: str = "",
    **given: Unpack[sdk_options.TemplateChanges],
) -> TemplateTask[dict[str, str]]: ...
@overload
def workflow(
    manifest: Any,
    /,
    *,
    result: type[R],
    service_account_name: str = "",
    **given: Unpack[sdk_options.TemplateChanges],
) -> TemplateTask[R]: ...
def workflow(
    manifest: Any,
    /,
    *,
    result: Any = dict[str, str],
    service_account_name: str = "",
    **given: Any,
) -> TemplateTask[Any]:
    """Make a task that runs an Argo Workflow.

    `manifest`: the Workflow as YAML, as a mapping, or as an object with `to_dict()`, such as
    Hera's. The result of the task is a mapping of the Workflow's global output parameters, whose
    values are texts; it is checked against `result`. Options are those of
    `options.TemplateChanges`. Raises BadOption.
    """
    body = manifest.to_dict() if hasattr(manifest, "to_dict") else manifest
    template = object_task.WorkflowTemplate(
        manifest=_copied(body), service_account_name=service_account_name
    )
    return TemplateTask({"workflow": template}, given, of="kiln.workflow", result=result)


@overload
def manifest(
    manifest: Any,
    /,
    *,
    success_condition: Any,
    failure_condition: Any = None,
    running_condition: Any = None,
    json_path: str = "",
    service_account_name: str = "",
    **given: Unpack[sdk_options.TemplateChanges],
) -> TemplateTask[Any]: ...
@overload
def manifest(
    manifest: Any,
    /,
    *,
    success_condition: Any,
    failure_condition: Any = None,
    running_condition: Any = None,
    json_path: str = "",
    result: type[R],
    service_account_name: str = "",
    **given: Unpack[sdk_options.TemplateChanges],
) -> TemplateTask[R]: ...
def manifest(  # noqa: PLR0913 - the fields of spec.customResource, by name
    manifest: Any,
    /,
    *,
    success_condition: Any,
    failure_condition: Any = None,
    running_condition: Any = None,
    json_path: str = "",
    result: Any = Any,
    service_account_name: str = "",
    **given: Any,
) -> TemplateTask[Any]:
    """Make a task that creates a Kubernetes object of any kind, given as YAML or as a mapping.

    The conditions are result rules, such as `'.status.phase == "Succeeded"'`. The value at
    `json_path` in the object is the result, checked against `result`. Options are those of
    `options.TemplateChanges`. Raises BadOption.
    """
    rules = object_task.ObjectResult(
        success_condition=success_condition,
        failure_condition=failure_condition,
        running_condition=running_condition,
        json_path=json_path,
    )
    template = object_task.CustomResource(
        manifest=_copied(manifest), result=rules, service_account_name=service_account_name
    )
    return TemplateTask({"custom_resource": template}, given, of="kiln.manifest", result=result)


@overload
def http(
    template: Mapping[str, Any], /, **given: Unpack[sdk_options.TemplateChanges]
) -> TemplateTask[Any]: ...
@overload
def http(
    template: Mapping[str, Any], /, *, result: type[R], **given: Unpack[sdk_options.TemplateChanges]
) -> TemplateTask[R]: ...
def http(template: Mapping[str, Any], /, *, result: Any = Any, **given: Any) -> TemplateTask[Any]:
    """Make a task that sends an HTTP request.

    `template`: the fields of `spec.http` of a Task, with `request`. The result of the task is the
    body of the response, or the value that `response.resultJsonPath` selects, checked against
    `result`. Options are those of `options.TemplateChanges`. Raises BadOption.
    """
    return _request(template, http_task.HttpTemplate, given, field="http", result=result)


@overload
def function(
    template: Mapping[str, Any], /, **given: Unpack[sdk_options.TemplateChanges]
) -> TemplateTask[Any]: ...
@overload
def function(
    template: Mapping[str, Any], /, *, result: type[R], **given: Unpack[sdk_options.TemplateChanges]
) -> TemplateTask[R]: ...
def function(
    template: Mapping[str, Any], /, *, result: Any = Any, **given: Any
) -> TemplateTask[Any]:
    """Make a task that sends a request to a Knative Service.

    `template`: the fields of `spec.function` of a Task, with `service` and `request`. Everything
    else is as for `http`.
    """
    return _request(template, knative_task.FunctionTemplate, given, field="function", result=result)


@overload
def external(
    executor: str, payload: Any = None, /, **given: Unpack[sdk_options.TemplateChanges]
) -> TemplateTask[Any]: ...
@overload
def external(
    executor: str,
    payload: Any = None,
    /,
    *,
    result: type[R],
    **given: Unpack[sdk_options.TemplateChanges],
) -> TemplateTask[R]: ...
def external(
    executor: str, payload: Any = None, /, *, result: Any = Any, **given: Any
) -> TemplateTask[Any]:
    """Make a task for an external executor, which is a user's program that claims its tasks.

    The result of the task is the value that the program returns, checked against `result`. Options
    are those of `options.TemplateChanges`. Raises BadOption.
    """
    template = api_task.ExternalTask(executor=executor, payload=_copied(payload))
    return TemplateTask({"external": template}, given, of="kiln.external", result=result)


def _request(
    template: Mapping[str, Any],
    wanted: type[http_task.HttpTemplate],
    given: Mapping[str, Any],
    *,
    field: str,
    result: Any,
) -> TemplateTask[Any]:
    try:
        made = msgspec.convert(_copied(template), wanted)
    except msgspec.ValidationError as error:
        message = f"kiln.{field}: the template is not as spec.{field}: {error}"
        raise errors.BadOption(message) from None
    return TemplateTask({field: made}, given, of=f"kiln.{field}", result=result)


def _copied(manifest: Any) -> Any:
    """Return a JSON-compatible copy of a manifest.

    The task does not see later changes of the original.
    """
    try:
        return msgspec.to_builtins(manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.BadOption(f"the template is no YAML and no JSON: {error}") from None
