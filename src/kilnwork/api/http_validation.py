"""Checks of `spec.http` and `spec.function` beyond their schemas; problems are (field, text) pairs.

Used by `task_validation`, and by `executors.http` after variables are replaced. No I/O.
"""

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import (
    http_task,
    json_limits,
    knative_task,
    names,
    object_task_manifests,
    result_rule_compiler,
    substitution,
    task,
)

Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without a subject."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""An HTTP method or header name (RFC 9110, 5.6.2)."""

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""The value of a header, without characters that could start another header (RFC 9110, 5.5)."""

_FORBIDDEN_METHODS = ("CONNECT", "TRACE")
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
CONDITIONS = ("successCondition", "failureCondition", "runningCondition")


class InvalidRequest(result_rule_compiler.InvalidRules):
    """The request cannot be sent; `problems` names each field and the reason."""


def variables(template: http_task.HttpTemplate) -> set[str]:
    """Return the names of the variables that strings of a request may contain, without those of its
    inputs."""
    own = {http_task.CALLBACK_URL} if template.callback_settings is not None else set()
    return {*substitution.TASK_VARIABLES, *own}


def input_names(spec: task.TaskTemplate) -> frozenset[str]:
    """Return the names of the inputs that the requests of a task use as variables. Raises
    LimitExceeded."""
    sent = [] if spec.sent is None else [_to_json(spec.sent.request)]
    if spec.function is not None and spec.function.cancel is not None:
        sent.append(_to_json(spec.function.cancel.request))
    return substitution.inputs_in(sent)


def substitute(
    template: http_task.HttpTemplate,
    values: Callable[[], Mapping[str, Any]],
    field: str = "spec.http",
) -> http_task.HttpTemplate:
    """Return the template with its variables replaced, and checked again if it had any.

    Raises InvalidRequest, `substitution.InvalidTemplate` or `json_limits.LimitExceeded`.
    """
    encoded = msgspec.json.encode(template.request)
    if b"${" not in encoded:
        return template  # nothing to replace; it was checked when it was admitted
    rendered = substitution.substitute(
        {"request": msgspec.json.decode(encoded)}, values(), field=field, text_fields=("request",)
    )
    made = msgspec.structs.replace(
        template, request=msgspec.convert(rendered["request"], http_task.HttpRequest)
    )
    found = list(request_problems(made.request, f"{field}.request", variable=False))
    if found:
        raise InvalidRequest(found)
    return made


def _to_json(request: http_task.HttpRequest) -> Any:
    """Return the request as parsed JSON: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(request))


def result_rules(given: http_task.HttpResponse) -> result_rule_compiler.ResultRules:
    """Return the conditions of a response. Raises `msgspec.ValidationError` for an invalid rule."""
    return result_rule_compiler.ResultRules(
        success_condition=_condition(given.success_condition),
        failure_condition=_condition(given.failure_condition),
        running_condition=_condition(given.running_condition),
    )


def _condition(given: Any) -> result_rule_compiler.Condition | None:
    if given is None:
        return None
    if isinstance(given, list | tuple):
        return tuple(_rule(one) for one in given)
    return _rule(given)


def _rule(given: Any) -> str | result_rule_compiler.Rule:
    return given if isinstance(given, str) else msgspec.convert(given, result_rule_compiler.Rule)


def problems(
    template: http_task.HttpTemplate, field: str = "spec.http", *, besides: Iterable[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a request, its conditions and its labels, for admission.

    `besides`: allowed variables in addition to `variables`.
    """
    known = {*variables(template), *besides}
    yield from _open_request_problems(template.request, known, f"{field}.request")
    yield from _response_problems(template, f"{field}.response")
    for which in ("required", "preferred"):
        for key, value in getattr(template.affinity, which).items():
            problem = names.qualified_problem(key) or names.label_value_problem(value)
            if problem is not None:
                yield f"{field}.affinity.{which}.{key}", problem
    if template.polling is not None and template.callback is not None:
        yield f"{field}.callback", "may not be given together with polling"
    if template.polling is not None and template.polling.location:
        yield from _path_problems(template.polling.location, f"{field}.polling.location")


def _open_request_problems(
    request: http_task.HttpRequest, known: Collection[str], field: str
) -> Iterator[Problem]:
    yield from request_problems(request, field, variable=True)
    try:
        yield from substitution.find_problems(_to_json(request), known, field)
    except json_limits.LimitExceeded as error:
        yield field, str(error)


def _response_problems(template: http_task.HttpTemplate, field: str) -> Iterator[Problem]:
    given = template.response
    if given.result_json_path:
        yield from _path_problems(given.result_json_path, f"{field}.resultJsonPath")
        if given.format in ("text", "bytes"):
            yield f"{field}.resultJsonPath", f"is for json and yaml, not for {given.format}"
    if given.running_condition is not None and template.polling is None:
        yield f"{field}.runningCondition", "has a meaning only with polling"
    try:
        yield from result_rule_compiler.problems(result_rules(given), field)
    except msgspec.ValidationError as error:
        yield field, f"has a condition that is no rule: {error}"


def _path_problems(path: str, field: str) -> Iterator[Problem]:
    yield from result_rule_compiler.problems(
        result_rule_compiler.ResultRules(
            success_condition=result_rule_compiler.Rule(json_path=path, operator="Exists")
        ),
        field,
    )


def request_problems(
    request: http_task.HttpRequest, field: str, *, variable: bool
) -> Iterator[Problem]:
    """Yield the problems of an HTTP request, as (field, message).

    `variable`: whether strings may still contain variables; strings that do are not checked.
    """
    method = request.method
    if not _may_have_variables(method, variable) and (
        not _TOKEN.fullmatch(method) or method.upper() in _FORBIDDEN_METHODS
    ):
        yield f"{field}.method", f"must be a method such as GET or POST, not {method!r}"
    if not _may_have_variables(request.url, variable) and (problem := url_problem(request.url)):
        yield f"{field}.url", problem
    for which, given in (("headers", request.headers), ("queryString", request.query_string)):
        for position, one in enumerate(given):
            at = f"{field}.{which}[{position}]"
            yield from _value_problems(one.value, one.secret_ref, at)
            if which == "headers":
                yield from _header_problems(one, at, variable=variable)
    for position, cookie in enumerate(request.cookies):
        at = f"{field}.cookies[{position}]"
        yield from _value_problems(cookie.value, cookie.secret_ref, at)
        if re.search(r"[\x00-\x20;,]", cookie.value) or not _TOKEN.fullmatch(cookie.name):
            yield at, "must be a name and a value without spaces, commas and semicolons"
    if request.post_data is not None:
        yield from _body_problems(request.post_data, f"{field}.postData")


def url_problem(url: str) -> str:
    """Return why a URL cannot be requested, or ""."""
    try:
        parts = parse.urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"must be absolute, with http or https, not {url[:200]!r}"
    if "#" in url:
        return "may have no fragment: it is never sent"
    if parts.username is not None or parts.password is not None:
        return "may have no user and password: send an Authorization header by _secretRef"
    if re.search(r"[\x00-\x20\x7f\\]", url):
        return "has a space, a backslash or a control character: encode it"
    return ""


def _may_have_variables(text: str, variable: bool) -> bool:  # noqa: FBT001
    return variable and "${" in text


def _value_problems(
    value: str, secret: http_task.SecretRef | None, field: str
) -> Iterator[Problem]:
    if secret is None:
        return
    if value:
        yield field, "give either value or _secretRef"
    if not _HEADER_VALUE.fullmatch(secret.prefix):
        yield f"{field}._secretRef.prefix", "has a control character, or is not Latin-1"
    if (problem := names.subdomain_problem(secret.name)) is not None:
        yield f"{field}._secretRef.name", problem
    if (problem := names.data_key_problem(secret.key)) is not None:
        yield f"{field}._secretRef.key", problem


def _header_problems(
    header: http_task.NameValue, field: str, *, variable: bool
) -> Iterator[Problem]:
    name = header.name.removeprefix(":")
    if not _may_have_variables(name, variable) and not _TOKEN.fullmatch(name):
        yield f"{field}.name", f"is no name of a header: {header.name!r}"
    if not _HEADER_VALUE.fullmatch(header.value):
        yield f"{field}.value", "has a line break, another control character, or is not Latin-1"


def _body_problems(body: http_task.PostData, field: str) -> Iterator[Problem]:
    given = [body.text is not None, bool(body.params), body.body_base64 is not None]
    if sum(given) > 1:
        yield field, "give one of text, params and _bodyBase64"
    if not _HEADER_VALUE.fullmatch(body.mime_type):
        yield f"{field}.mimeType", "has a line break or another control character"
    if body.params:
        kind = body.mime_type.partition(";")[0].strip().lower()
        if kind not in (_FORM, _MULTIPART):
            yield f"{field}.mimeType", f"must be {_FORM} or {_MULTIPART} with params"
        elif kind == _FORM and any(p.file_name or p.content_type for p in body.params):
            yield f"{field}.params", f"files need {_MULTIPART}"
    if body.body_base64 is not None:
        try:
            base64.b64decode(body.body_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            yield f"{field}._bodyBase64", f"is not base64: {error}"


def spec_problems(
    spec: task.TaskTemplate,
    given_inputs: Collection[str] | None = (),
    *,
    more: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield the problems of a task that sends a request. `given_inputs`, `more`: see
    `object_task_manifests`."""
    if spec.sent is None:
        return
    for name, given in (("env", spec.env), ("image", spec.image)):
        if given:
            yield f"spec.{name}", "is for a command: a request has neither"
    try:
        named = input_names(spec) if given_inputs is None else given_inputs
    except json_limits.LimitExceeded:
        named = ()  # reported below
    besides = [*object_task_manifests.input_variables(spec, named), *more]
    if spec.http is not None:
        yield from problems(spec.http, besides=besides)
    if spec.function is not None:
        yield from _function_problems(spec.function, "spec.function", besides)


def _function_problems(
    given: knative_task.FunctionTemplate, field: str, besides: Collection[str]
) -> Iterator[Problem]:
    if given.template is not None:
        yield f"{field}.template", "is for a JobConfig, which owns the Service: name one in service"
    if (problem := names.label_1035_problem(given.service)) is not None:
        yield f"{field}.service", problem
    unused = "callback" if given.mode == "Sync" else "polling"
    if getattr(given, unused) is not None:
        yield f"{field}.{unused}", f"has no meaning with mode: {given.mode}"
        return
    placed = given.with_base_url("http://function.invalid")
    yield from problems(placed, field, besides=besides)
    if placed.cancel is not None:
        known = {*variables(placed), *besides}
        yield from _open_request_problems(placed.cancel.request, known, f"{field}.cancel.request")
        if placed.polling is not None and placed.polling.cancel_method:
            yield f"{field}.polling.cancelMethod", "may not be given together with cancel"
