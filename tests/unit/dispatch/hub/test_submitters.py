"""Requests of drivers whose response comes later, when the dispatcher may have stopped."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kilnwork.channel import messages
from kilnwork.dispatch import errors
from kilnwork.dispatch.hub import submitters
from kilnwork.kit import coroutines
from support import scripted_calls


class FailedCore:
    """A core whose store fails while a request waits for it."""

    def __init__(self) -> None:
        world = scripted_calls.world_with_call()[0]
        self.machine = world.machine
        self.limits = SimpleNamespace(executors=True)
        self.reader = SimpleNamespace(values=lambda *_: {})

    def apply(self, item: object) -> None:
        raise errors.HubStopped("the dispatcher failed: disk")


class Retries:
    async def ask(self, message: messages.Retry, namespace: str) -> None:
        """Retry at once: the new run is on disk."""


class SilentLink:
    number = scripted_calls.DRIVER

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def write_all(self, sent: list[Any]) -> None:
        self.sent += sent


async def test_retry_that_the_store_cannot_follow_ends_without_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = coroutines.BackgroundWork("hub")
    handlers = submitters.Submitters(
        cast(Any, FailedCore()),
        cast(Any, None),
        retries=cast(Any, Retries()),
        background=background,
        variables=lambda *_: None,
        prune=None,
    )
    link = SilentLink()
    with caplog.at_level(logging.ERROR):
        message = messages.Retry(number=7, task=scripted_calls.task_id(1), failed=False)
        handlers.from_driver(cast(Any, link), message)
        await background.wait(timeout_s=10)
    assert not link.sent
    assert not caplog.records
