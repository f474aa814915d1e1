"""Whether a request may be sent twice, and what a template has unless it says otherwise."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import http_task


def template(method: str = "GET", **fields: Any) -> http_task.HttpTemplate:
    request = {"method": method, "url": "https://a/"}
    return msgspec.convert({"request": request, **fields}, http_task.HttpTemplate)


@pytest.mark.parametrize(
    ("method", "idempotent", "may_repeat"),
    [
        ("GET", None, True),
        ("get", None, True),
        ("HEAD", None, True),
        ("OPTIONS", None, True),
        ("TRACE", None, True),
        ("POST", None, False),
        ("PUT", None, False),
        ("DELETE", None, False),
        ("POST", True, True),
        ("GET", False, False),
    ],
)
def test_request_is_repeated_if_safe_or_idempotent(
    method: str,
    idempotent: bool | None,  # noqa: FBT001
    may_repeat: bool,  # noqa: FBT001
) -> None:
    assert template(method, idempotent=idempotent).may_repeat is may_repeat


def test_a_result_is_in_the_response_unless_a_callback_is_awaited() -> None:
    assert template().awaited is None
    awaited = template(callback={}).awaited
    assert awaited is not None
    assert awaited.timeout_seconds == 86_400


def test_a_template_needs_a_request() -> None:
    with pytest.raises(msgspec.ValidationError, match="request"):
        msgspec.convert({}, http_task.HttpTemplate)


def test_unknown_field_of_a_template_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="retries"):
        template(retries=3)
