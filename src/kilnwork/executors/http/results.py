"""Conversion of a response to the stored result of a task.

Used by `attempt`. A large body is judged in a thread and stored as a blob.
"""

import asyncio
import contextlib
from typing import Protocol

from kilnwork.api import attempts, http_task, reasons
from kilnwork.executors.http import errors, exchange, response_rules
from kilnwork.kit import errors as kit_errors

MAX_YAML_BYTES = 4 * 1024
"""Maximum size in bytes of a YAML body that is parsed in the event loop, which takes 20
microseconds per byte."""


class ResultStore(Protocol):
    """A store for results that are too large for a frame."""

    async def put(self, namespace: str, body: exchange.Body) -> bytes:
        """Store a body as a blob and return its digest. Raises KilnError."""
        ...


async def judge_response(
    template: http_task.HttpTemplate, received: exchange.Received, *, output_type: str
) -> response_rules.Success | response_rules.StillRunning:
    """Return the verdict on a response; its body stays open unless this function raises."""
    body = received.body
    try:
        kind = response_rules.body_format(
            template.response, output_type, received.header("content-type")
        )
        as_it_is = kind == "bytes" and 200 <= received.status < 300
        raw = b"" if as_it_is else body.read()
        waits = template.polling is not None or template.callback is not None
        given = template, received.status, received.headers, raw
        verdict = await check_body(*given, kind=kind, waits=waits)
    except BaseException:
        body.close()
        raise
    if as_it_is and body.size and isinstance(verdict, response_rules.Success):
        return response_rules.Success(None, response_rules.BYTES)
    return verdict


async def check_body(
    template: http_task.HttpTemplate,
    status: int,
    headers: list[tuple[str, str]],
    raw: bytes,
    *,
    kind: str,
    waits: bool,
) -> response_rules.Success | response_rules.StillRunning:
    """Return the verdict of `response_rules.judge_response`, computed in a thread if the body is
    large.
    """
    if len(raw) > (MAX_YAML_BYTES if kind == "yaml" else exchange.IN_MEMORY_BYTES):
        return await asyncio.to_thread(
            response_rules.judge_response, template, status, headers, raw, kind=kind, waits=waits
        )
    return response_rules.judge_response(template, status, headers, raw, kind=kind, waits=waits)


async def payload(
    verdict: response_rules.Success, body: exchange.Body, *, store: ResultStore, namespace: str
) -> attempts.Payload | None:
    """Return the result as a payload: inline if it is small, else a blob. Raises
    `AttemptFailed`.
    """
    media_type = verdict.media_type
    if media_type is None:
        return None
    if verdict.result is not None:
        if len(verdict.result) <= attempts.MAX_INLINE_BYTES:
            return attempts.Payload(media_type, verdict.result)
        with contextlib.closing(exchange.Body()) as made:
            made.write(verdict.result)
            return await _kept(media_type, made, store, namespace)
    if body.size <= attempts.MAX_INLINE_BYTES:
        return attempts.Payload(media_type, body.read())
    return await _kept(media_type, body, store, namespace)


async def _kept(
    media_type: str, body: exchange.Body, store: ResultStore, namespace: str
) -> attempts.Payload:
    try:
        digest = await store.put(namespace, body)
    except (kit_errors.KilnError, OSError) as error:
        raise errors.AttemptFailed(
            reasons.Reason.RESULT_LOST, f"the result cannot be kept: {error}", is_loss=True
        ) from error
    return attempts.Payload(media_type, b"", digest, body.size)
