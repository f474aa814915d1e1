"""Admission of `spec.http` and `spec.function`: each mistake is reported with its field."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import (
    http_task,
    http_validation,
    json_limits,
    knative_task,
    task,
    task_validation,
)

OK = {"method": "GET", "url": "http://h/"}
END = {"request": {"method": "DELETE"}}
LARGE = {"text": "x" * json_limits.MAX_SIZE}


def problems(http: dict[str, Any], **spec: Any) -> list[tuple[str, str]]:
    made = msgspec.convert({"http": http, **spec}, task.TaskSpec)
    return task_validation.spec_problems(made)


def test_sample_of_the_executor_proposal_is_accepted() -> None:
    request = {
        "method": "GET",
        "url": "http://my-service.default.svc:8080/my-path",
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": "Content-Type", "value": "application/json"}],
        "queryString": [{"name": "param", "value": "value1", "comment": "Custom comment"}],
        "postData": {"mimeType": "application/json", "text": '{ "mydata": { "field": 1 } }'},
    }
    response = {"format": "json", "resultJsonPath": ".result.jobs"}
    timeout = {"socketTimeout": 10, "readTimeout": 30}
    assert problems({"request": request, "response": response, "timeout": timeout}) == []


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"method": "G T"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"url": "ftp://h/"}, "url"),
        ({"url": "/path"}, "url"),
        ({"url": "http://h/#x"}, "url"),
        ({"url": "http://u:p@h/"}, "url"),
        ({"url": "http://h:99999/"}, "url"),
        ({"url": "http://h/a b"}, "url"),
        ({"url": "http://h/\r\nX: 1"}, "url"),
        ({"headers": [{"name": "a b"}]}, "headers[0].name"),
        ({"headers": [{"name": "a", "value": "x\r\ny: 1"}]}, "headers[0].value"),
        ({"headers": [{"name": "a", "value": "€"}]}, "headers[0].value"),
        (
            {"headers": [{"name": "a", "value": "x", "_secretRef": {"name": "s", "key": "k"}}]},
            "headers[0]",
        ),
        (
            {"headers": [{"name": "a", "_secretRef": {"name": "S", "key": "k"}}]},
            "headers[0]._secretRef.name",
        ),
        ({"cookies": [{"name": "a", "value": "x; y"}]}, "cookies[0]"),
        ({"postData": {"text": "", "_bodyBase64": ""}}, "postData"),
        ({"postData": {"_bodyBase64": "!"}}, "postData._bodyBase64"),
        ({"postData": {"params": [{"name": "a"}]}}, "postData.mimeType"),
        ({"url": "http://h/${task.nope}"}, "url"),
        ({"url": "http://h/${task.callback_url}"}, "url"),
    ],
)  # fmt: skip
def test_invalid_request_is_refused(request_: dict[str, Any], field: str) -> None:
    found = problems({"request": {**OK, **request_}})
    assert [name for name, _ in found] == [f"spec.http.request.{field}"], found


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"response": {"resultJsonPath": "$["}}, "response"),
        ({"response": {"resultJsonPath": "$.a", "format": "bytes"}}, "response.resultJsonPath"),
        ({"response": {"successCondition": {"nope": 1}}}, "response"),
        ({"response": {"successCondition": "$.a =~ 1"}}, "response.successCondition"),
        ({"response": {"runningCondition": "$.a"}}, "response.runningCondition"),
        ({"polling": {}, "callback": {}}, "callback"),
        ({"polling": {"location": "$["}}, "polling"),
        ({"affinity": {"required": {"a b": "c"}}}, "affinity.required.a b"),
        ({"affinity": {"preferred": {"a": "c,d"}}}, "affinity.preferred.a"),
    ],
)
def test_invalid_http_template_is_refused(more: dict[str, Any], field: str) -> None:
    found = problems({"request": OK, **more})
    assert len(found) == 1, found
    assert found[0][0].startswith(f"spec.http.{field}")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, ""),
        ({"service": "Hello"}, "service"),
        ({"service": ""}, "service"),
        ({"request": {"method": "POST", "url": "/a b"}}, "request.url"),
        ({"callback": {}}, "callback"),
        ({"callback": {}, "mode": "Callback"}, ""),
        ({"polling": {}, "mode": "Callback"}, "polling"),
        ({"polling": {"cancelMethod": "PUT"}, "cancel": END}, "polling.cancelMethod"),
        ({"cancel": {"request": {**END["request"], "postData": LARGE}}}, "cancel.request"),
        ({"cancel": {"request": {"method": "a b"}}}, "cancel.request.method"),
        ({"cancel": {"request": {"method": "PUT", "url": "/${task.x}"}}}, "cancel.request.url"),
    ],
)
def test_invalid_function_is_refused(more: dict[str, Any], field: str) -> None:
    given = {"service": "hello", "request": {"method": "POST"}, **more}
    made = msgspec.convert({"function": given}, task.TaskSpec)
    found = [name for name, _ in task_validation.spec_problems(made)]
    assert found == ([f"spec.function.{field}"] if field else [])


@pytest.mark.parametrize("url", ["@elsewhere", "http://elsewhere/", "${task.name}", ""])
def test_a_request_to_a_function_stays_below_its_url(url: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"method": "GET", "url": url}, knative_task.FunctionRequest)


@pytest.mark.parametrize("other", [{"command": ["x"]}, {"env": [{"name": "a"}]}, {"image": "x"}])
def test_request_excludes_other_fields_of_a_task(other: dict[str, Any]) -> None:
    assert len(problems({"request": OK}, **other)) == 1


def test_request_is_checked_again_after_substitution() -> None:
    spec = msgspec.convert({"request": {**OK, "url": "${task.name}"}}, type=_TEMPLATE)
    assert http_validation.substitute(spec, lambda: {"task.name": "http://x/"}).request.url
    with pytest.raises(http_validation.InvalidRequest, match="absolute"):
        http_validation.substitute(spec, lambda: {"task.name": "file:///etc/passwd"})
    header = {**OK, "headers": [{"name": "a", "value": "${task.name}"}]}
    spec = msgspec.convert({"request": header}, type=_TEMPLATE)
    with pytest.raises(http_validation.InvalidRequest, match="line break"):
        http_validation.substitute(spec, lambda: {"task.name": "a\r\nb: c"})


_TEMPLATE = http_task.HttpTemplate
