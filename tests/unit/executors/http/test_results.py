"""What is stored as the result of a request: inline, as a blob, or not at all."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, http_task, reasons
from kilnwork.executors.http import errors, exchange, response_rules, results
from kilnwork.kit import errors as kit_errors

DIGEST = b"d" * 32


class Store:
    """Keeps what it is given, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.kept: list[tuple[str, bytes]] = []

    async def put(self, namespace: str, body: exchange.Body) -> bytes:
        if self.error is not None:
            raise self.error
        self.kept.append((namespace, body.read()))
        return DIGEST


def body_of(content: bytes) -> exchange.Body:
    made = exchange.Body()
    made.write(content)
    return made


def received(content: bytes, *, status: int = 200, kind: str = "text/plain") -> exchange.Received:
    return exchange.Received(
        status=status,
        reason="",
        version="HTTP/1.1",
        headers=[("Content-Type", kind)],
        body=body_of(content),
        address="",
        timings=exchange.Timings(0.0),
    )


def template(**response: Any) -> http_task.HttpTemplate:
    given = {"request": {"method": "GET", "url": "http://h/"}, "response": response}
    return msgspec.convert(given, http_task.HttpTemplate)


async def stored(
    verdict: response_rules.Success, content: bytes = b"", *, store: Store
) -> attempts.Payload | None:
    return await results.payload(verdict, body_of(content), store=store, namespace="ns")


LIMIT = attempts.MAX_INLINE_BYTES


@pytest.mark.parametrize("size", [0, 1, LIMIT])
async def test_a_small_result_is_inline(size: int) -> None:
    store = Store()
    by_rule = response_rules.Success(b"x" * size, "application/json")
    whole = response_rules.Success(None, "text/plain")
    assert await stored(by_rule, store=store) == attempts.Payload("application/json", b"x" * size)
    assert await stored(whole, b"y" * size, store=store) == (
        attempts.Payload("text/plain", b"y" * size)
    )
    assert store.kept == []


async def test_a_large_result_is_a_blob() -> None:
    store = Store()
    large = b"x" * (LIMIT + 1)
    verdict = response_rules.Success(large, "application/json")
    payload = attempts.Payload("application/json", b"", DIGEST, LIMIT + 1)
    assert await stored(verdict, store=store) == payload
    assert store.kept == [("ns", large)]
    whole = response_rules.Success(None, "text/plain")
    assert await stored(whole, large, store=store) == (
        attempts.Payload("text/plain", b"", DIGEST, LIMIT + 1)
    )


async def test_no_media_type_is_no_result() -> None:
    assert await stored(response_rules.Success(None, None), b"x", store=Store()) is None


@pytest.mark.parametrize("error", [kit_errors.KilnError("full"), OSError("full")])
async def test_a_result_that_cannot_be_kept_is_a_loss(error: Exception) -> None:
    verdict = response_rules.Success(b"x" * (LIMIT + 1), "application/json")
    with pytest.raises(errors.AttemptFailed, match="the result cannot be kept: full") as caught:
        await stored(verdict, store=Store(error))
    assert caught.value.is_loss
    assert caught.value.reason is reasons.Reason.RESULT_LOST


async def test_bytes_of_a_success_are_the_result_unread() -> None:
    verdict = await results.judge_response(template(), received(b"\xff"), output_type="bytes")
    assert verdict == response_rules.Success(None, response_rules.BYTES)


async def test_the_body_stays_open_unless_judging_it_fails() -> None:
    large = b"{" + b" " * exchange.IN_MEMORY_BYTES  # in a file, and no JSON
    broken = received(large, kind="application/json")
    with pytest.raises(errors.AttemptFailed):
        await results.judge_response(template(resultJsonPath="$.a"), broken, output_type="json")
    with pytest.raises(ValueError, match="closed file"):
        broken.body.read()
    good = received(b'{"a": 1}', kind="application/json")
    verdict = await results.judge_response(template(resultJsonPath="$.a"), good, output_type="json")
    assert isinstance(verdict, response_rules.Success)
    assert verdict.result == b"1"
    assert good.body.read() == b'{"a": 1}'
