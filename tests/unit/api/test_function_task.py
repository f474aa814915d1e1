"""Requests to functions get the URL of their Service."""

from typing import Any

import msgspec

from kilnwork.api import function_task, http_task


def template(**fields: Any) -> function_task.FunctionTemplate:
    given = {"service": "f", "request": {"method": "POST", "url": "/run?x=1"}, **fields}
    return msgspec.convert(given, function_task.FunctionTemplate)


def test_urls_become_absolute() -> None:
    cancel = {"request": {"method": "DELETE", "url": "/work"}}
    made = template(cancel=cancel).at("http://f.default.example/")
    assert made.request.url == "http://f.default.example/run?x=1"
    assert made.cancel is not None
    assert made.cancel.request.url == "http://f.default.example/work"


def test_mode_callback_awaits_a_callback() -> None:
    assert template(mode="Callback").awaited == http_task.Callback()
    assert template(mode="Callback").at("http://f").callback == http_task.Callback()
    assert template().awaited is None


def test_explicit_callback_is_kept() -> None:
    made = template(mode="Callback", callback={"timeoutSeconds": 5})
    assert made.awaited is not None
    assert made.awaited.timeout_seconds == 5
