"""The rules by which a response is judged: success with a result, failure, or work that continues.

No I/O. Used by `results` and `attempt`. Conditions see `{status, headers, body}`; without
`successCondition` a status from 200 to 299 is a success.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message
from typing import Any

import msgspec
import yaml

from kilnwork.api import (
    attempts,
    http_task,
    http_validation,
    json_limits,
    jsonpaths,
    reasons,
    result_rule_compiler,
    result_rule_evaluation,
)
from kilnwork.executors.http import errors

BYTES = "application/octet-stream"
MAX_SHOWN = 300
"""Maximum number of characters of a failed response's body in a message."""

MAX_SCANNED_BYTES = 64 * 1024
"""Number of bytes of that body in which secrets are hidden, before the body is cut."""

_R = reasons.Reason
_O = result_rule_evaluation.RuleOutcome


@dataclass(frozen=True, slots=True)
class Success:
    """The verdict that the task has succeeded.

    `result`: the task's result; None if the body itself, of `media_type`, is the result, or if
    there is none.
    """

    result: bytes | None
    media_type: str | None


@dataclass(frozen=True, slots=True)
class StillRunning:
    """The verdict that the work continues on the server. `document`: the body, if it could be
    parsed.
    """

    document: Any


def body_format(given: http_task.HttpResponse, output_type: str, content_type: str | None) -> str:
    """Return the format by which to parse the body: `json`, `yaml`, `text` or `bytes`."""
    if given.format:
        return given.format
    if output_type == "bytes":
        return "bytes"
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return "json"
    if kind.endswith(("/yaml", "+yaml", "/x-yaml")):
        return "yaml"
    return "text" if kind.startswith("text/") else "bytes"


def judge_response(
    template: http_task.HttpTemplate,
    status: int,
    headers: Sequence[tuple[str, str]],
    raw: bytes,
    *,
    kind: str,
    waits: bool,
) -> Success | StillRunning:
    """Decide from a response whether the task has succeeded or its work continues.

    `raw`: the body; `kind`: the format by which to parse it (see `body_format`). `waits`: whether
    the status 202 means that the work continues. Raises `AttemptFailed` if the task has failed.
    """
    given = template.response
    goes_on = waits and status == 202
    successful = 200 <= status < 300
    try:
        body = parse(raw, kind, headers) if raw else None
    except ValueError as error:
        if goes_on:
            return StillRunning(None)
        if given.success_condition is None and not successful:
            raise _rejected(status, raw) from error
        raise errors.AttemptFailed(
            _R.INVALID_RESPONSE, f"the body is no {kind}: {error}"
        ) from error
    if goes_on:
        return StillRunning(body)
    try:
        if _is_running(template, status, headers, body, raw):
            return StillRunning(body)
        return _result(given, body, raw, kind)
    except json_limits.LimitExceeded as error:
        message = f"the body cannot be judged: it {error}"
        raise errors.AttemptFailed(_R.INVALID_RESPONSE, message) from error
    except UnicodeError as error:
        message = f"the body is no {kind} that JSON can have: {error.__class__.__name__}: {error}"
        raise errors.AttemptFailed(_R.INVALID_RESPONSE, message) from error


def _is_running(
    template: http_task.HttpTemplate,
    status: int,
    headers: Sequence[tuple[str, str]],
    body: Any,
    raw: bytes,
) -> bool:
    """Return whether a condition says that the work continues. Raises AttemptFailed if a condition
    says that it has failed.
    """
    given = template.response
    conditions = (given.success_condition, given.failure_condition, given.running_condition)
    if all(one is None for one in conditions):
        if not 200 <= status < 300:
            raise _rejected(status, raw)
        return False
    shown = {"status": status, "headers": {k.lower(): v for k, v in headers}, "body": body}
    compiled = result_rule_compiler.compile_rules(http_validation.result_rules(given), "response")
    outcome = compiled.judge(shown, check_generation=False)
    if outcome is _O.FAILED:
        raise errors.AttemptFailed(
            _R.RESPONSE_REJECTED, f"status {status}: failureCondition is true"
        )
    if outcome is _O.SUCCESS:
        return False
    if given.running_condition is not None and outcome is _O.RUNNING:
        return True
    if given.success_condition is not None:
        why = compiled.explain(shown, check_generation=False).removeprefix("waiting for ")
        raise errors.AttemptFailed(
            _R.RESPONSE_REJECTED, f"status {status}; successCondition is not true: {why}"
        )
    if not 200 <= status < 300:
        raise _rejected(status, raw)
    return False


def _rejected(status: int, raw: bytes) -> errors.AttemptFailed:
    summary = f"status {status}"
    shown = raw[:MAX_SCANNED_BYTES].decode("utf-8", "replace").strip()
    return errors.AttemptFailed(
        _R.RESPONSE_REJECTED,
        f"{summary}: {shown}" if shown else summary,
        max_length=len(summary) + MAX_SHOWN,
    )


def _result(given: http_task.HttpResponse, body: Any, raw: bytes, kind: str) -> Success:
    if given.result_json_path:
        return _part(given, body)
    if not raw:
        return Success(None, None)
    if kind == "json":
        return Success(None, attempts.JSON)
    if kind == "bytes":
        return Success(None, BYTES)
    return Success(msgspec.json.encode(body), attempts.JSON)


def _part(given: http_task.HttpResponse, body: Any) -> Success:
    """Return the value at `resultJsonPath` in the body as the result.

    Without a success condition, raises `AttemptFailed` if the value is missing, null or false.
    """
    budget = json_limits.Budget(json_limits.MAX_WORK)
    json_limits.measure(body)
    found = jsonpaths.compile_path(result_rule_compiler.whole_path(given.result_json_path)).select(
        body, budget
    )
    value = found[0] if len(found) == 1 else found
    if given.success_condition is None and (not found or value is None or value is False):
        what = json_limits.show(value) if found else "nothing"
        raise errors.AttemptFailed(
            _R.RESPONSE_REJECTED, f"at resultJsonPath {given.result_json_path} is {what}"
        )
    return Success(msgspec.json.encode(value if found else None), attempts.JSON)


def parse(raw: bytes, kind: str, headers: Sequence[tuple[str, str]]) -> Any:
    """Parse the body of a response. Raises ValueError."""
    if kind == "json":
        try:
            return msgspec.json.decode(raw)
        except RecursionError as error:
            raise ValueError("it is too deep") from error
    if kind == "bytes":
        return None
    text = raw.decode(_charset(headers), "strict" if kind == "yaml" else "replace")
    if kind == "text":
        return text
    try:
        found = yaml.safe_load(text)
        json_limits.measure(found)
    except (yaml.YAMLError, json_limits.LimitExceeded, RecursionError) as error:
        raise ValueError(str(error)) from error
    except (AttributeError, LookupError) as error:  # from `!!timestamp x`, `!!bool x`, `!!int ""`
        raise ValueError(f"a tag does not fit its value: {error}") from error
    except TypeError as error:  # keys in JSON are always strings
        raise ValueError("a key is no text") from error
    value = msgspec.to_builtins(found, str_keys=True)
    if not _is_finite(value):
        raise ValueError("a number is not finite, and would be null in JSON")
    return value


def _is_finite(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return True


def _charset(headers: Sequence[tuple[str, str]]) -> str:
    given = message.Message()
    given["Content-Type"] = _lowered(headers).get("content-type", "")
    name = str(given.get_content_charset("utf-8"))
    try:
        b" ".decode(name, "replace")  # for an empty body Python would not look up the codec
    except (LookupError, ValueError):
        return "utf-8"
    return name


def _lowered(headers: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers}


def poll_url(template: http_task.HttpTemplate, headers: Mapping[str, str], document: Any) -> str:
    """Return the URL at which the response says to poll for the result; "" if it names none."""
    polling = template.polling
    if polling is None:
        return ""
    if polling.location:
        path = jsonpaths.compile_path(result_rule_compiler.whole_path(polling.location))
        found = path.select(document, json_limits.Budget(json_limits.MAX_WORK))
        return found[0] if len(found) == 1 and isinstance(found[0], str) else ""
    return headers.get("location") or headers.get("operation-location") or ""
