"""What a response says, by its status, its body and the conditions of the task."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import http_task
from kilnwork.executors.http import errors, response_rules

JSON_BODY = b'{"state": "busy", "items": [{"n": 1}, {"n": 2}], "none": null, "no": false}'


def said(raw: bytes = JSON_BODY, *, status: int = 200, kind: str = "json", **more: Any) -> Any:
    """What is said of a response; `more`: fields of `spec.http.response` and `spec.http`."""
    response = {name: more.pop(name) for name in list(more) if name.endswith(("Path", "Condition"))}
    template = msgspec.convert(
        {"request": {"method": "GET", "url": "http://h/"}, "response": response, **more},
        http_task.HttpTemplate,
    )
    waits = template.polling is not None or template.callback is not None
    headers = [("Content-Type", "text/plain; charset=latin-1"), ("X-A", "1")]
    return response_rules.judge_response(template, status, headers, raw, kind=kind, waits=waits)


@pytest.mark.parametrize(
    ("path", "result"),
    [("$.items[*].n", [1, 2]), ("$.items[0].n", 1), (".state", "busy"), ("{.items[1]}", {"n": 2})],
)
def test_the_result_is_what_is_at_the_path(path: str, result: Any) -> None:
    found = said(resultJsonPath=path)
    assert msgspec.json.decode(found.result) == result


@pytest.mark.parametrize("path", ["$.nope", "$.none", "$.no"])
def test_nothing_null_and_false_are_a_failure_without_a_condition(path: str) -> None:
    with pytest.raises(errors.AttemptFailed, match="resultJsonPath"):
        said(resultJsonPath=path)
    found = said(resultJsonPath=path, successCondition="$.status == 200")
    assert msgspec.json.decode(found.result) in (None, False, [])


@pytest.mark.parametrize(
    ("more", "status", "goes_on"),
    [
        ({}, 202, False),
        ({"polling": {}}, 202, True),
        ({"callback": {}}, 202, True),
        ({"polling": {}}, 200, False),
        ({"polling": {}, "runningCondition": '$.body.state == "busy"'}, 200, True),
        ({"polling": {}, "runningCondition": '$.body.state == "gone"'}, 200, False),
    ],
)
def test_when_the_work_goes_on(more: dict[str, Any], status: int, *, goes_on: bool) -> None:
    assert isinstance(said(status=status, **more), response_rules.StillRunning) is goes_on


def test_failure_goes_before_all_else() -> None:
    with pytest.raises(errors.AttemptFailed, match="failureCondition"):
        said(
            failureCondition='$.body.state == "busy"',
            successCondition="$.status == 200",
            runningCondition="$.status == 200",
            polling={},
        )


def test_conditions_see_headers_in_lower_case() -> None:
    assert said(successCondition="$.headers['x-a'] == \"1\"")
    with pytest.raises(errors.AttemptFailed, match="x-b"):
        said(successCondition="$.headers['x-b'] == \"1\"")


@pytest.mark.parametrize(
    ("raw", "kind", "result"),
    [
        (b"a: [1, 2]\n", "yaml", {"a": [1, 2]}),
        (b"when: 2026-01-02\n", "yaml", {"when": "2026-01-02"}),
        (b"caf\xe9", "text", "café"),
    ],
)
def test_yaml_and_text_become_json(raw: bytes, kind: str, result: Any) -> None:
    assert msgspec.json.decode(said(raw, kind=kind).result) == result


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"{", "json"),
        (b"a: [", "yaml"),
        (b"1: x", "yaml"),
        (b"!!python/object:os.system {}", "yaml"),
        (b"!!timestamp x", "yaml"),
        (b"a: [1, .nan]", "yaml"),
        (b"-.inf", "yaml"),
        (b'!!int ""', "yaml"),
        (b"!!bool x", "yaml"),
        (b"[" * 100_000, "json"),
        (b'"\\ud800"', "yaml"),
        (b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110)
        ), "yaml"),
    ],
)  # fmt: skip
def test_a_body_that_is_not_what_it_should_be(raw: bytes, kind: str) -> None:
    with pytest.raises(errors.AttemptFailed, match=f"no {kind}"):
        said(raw, kind=kind)


def test_failed_status_is_reported_before_a_malformed_body() -> None:
    with pytest.raises(errors.AttemptFailed, match="status 502: <html>"):
        said(b"<html>bad gateway", status=502)
