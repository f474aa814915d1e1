"""Requests to functions get the URL of their Service."""

from typing import Any

import msgspec

from kilnwork.api import http_task, knative_task


def template(**fields: Any) -> knative_task.FunctionTemplate:
    given = {"service": "f", "request": {"method": "POST", "url": "/run?x=1"}, **fields}
    return msgspec.convert(given, knative_task.FunctionTemplate)


def test_urls_become_absolute() -> None:
    cancel = {"request": {"method": "DELETE", "url": "/work"}}
    made = template(cancel=cancel).with_base_url("http://f.default.example/")
    assert made.request.url == "http://f.default.example/run?x=1"
    assert made.cancel is not None
    assert made.cancel.request.url == "http://f.default.example/work"


def test_mode_callback_awaits_a_callback() -> None:
    assert template(mode="Callback").callback_settings == http_task.Callback()
    assert template(mode="Callback").with_base_url("http://f").callback == http_task.Callback()
    assert template().callback_settings is None


def test_explicit_callback_is_kept() -> None:
    made = template(mode="Callback", callback={"timeoutSeconds": 5})
    assert made.callback_settings is not None
    assert made.callback_settings.timeout_seconds == 5
