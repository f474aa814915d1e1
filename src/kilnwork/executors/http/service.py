"""The process of the HTTP executor, with the parts that all its attempts share.

Used by `kiln executor http`. Link, slots and lease are in `executors.service`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp

from kilnwork.api import task
from kilnwork.channel import messages
from kilnwork.executors import service
from kilnwork.executors.http import (
    attempt,
    exchange,
    function,
    guarded_connector,
    knative_services,
    secret_values,
    shared_timer,
    tls_contexts,
)
from kilnwork.kit import clock, egress, ids

EXECUTOR = "http"
MAX_POLLS = 100
"""Maximum number of concurrent polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpExecutorSettings(service.ExecutorSettings):
    """The user's options of the HTTP executor. `slots`: concurrent requests; work that is only
    polled takes none.
    """

    queue: str = task.executor_queue(EXECUTOR)
    policy: egress.Policy


class ApiReader(secret_values.SecretReader, knative_services.Services, Protocol):
    """Port that reads Secrets and Services from the API server."""


class HttpService(service.ExecutorService):
    """The process of the HTTP executor. Create it in a running event loop."""

    def __init__(
        self,
        settings: HttpExecutorSettings,
        manager: service.Manager,
        reader: ApiReader,
        *,
        time: clock.Clock,
        entropy: ids.Entropy,
        on_failure: Callable[[str], None],
    ) -> None:
        super().__init__(
            settings,
            manager,
            time=time,
            entropy=entropy,
            on_failure=on_failure,
        )
        self._sessions = exchange.Sessions(
            shared=_session(settings.policy, shared=True),
            own=_session(settings.policy, shared=False),
        )
        self._tools = attempt.Tools(
            link=self.link,
            sessions=self._sessions,
            contexts=tls_contexts.TlsContexts(),
            secrets=reader,
            services=reader,
            store=self,
            clock=time,
            entropy=entropy,
            late=shared_timer.DelayedCalls(attempt.STATUS_AFTER_S),
            polls=asyncio.Semaphore(MAX_POLLS),
            resumed=asyncio.Semaphore(settings.slots),
        )

    def make(self, run: messages.Run) -> attempt.HttpAttempt:
        if run.spec.function is None:
            return attempt.HttpAttempt(run, self._tools)
        return function.FunctionAttempt(run, self._tools, run.spec.function)

    async def stop(self, *, say: Callable[[str], None]) -> None:
        """Wait a limited time for requests to end, then abort them; after it returns, nothing is
        sent any more.
        """
        try:
            await super().stop(say=say)
        finally:
            self._tools.late.close()
            await self._sessions.close()

    async def put(self, namespace: str, body: exchange.Body) -> bytes:
        """Store a result as a blob; see `results.ResultStore`."""
        digest, path = await asyncio.to_thread(body.keep)
        await self.keep(namespace, digest, Path(path))
        return digest


def _session(policy: egress.Policy, *, shared: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=guarded_connector.GuardedConnector(policy, shared=shared),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        skip_auto_headers=("Content-Type",),  # the other automatic headers are always set
        max_line_size=exchange.MAX_HEAD_BYTES,
        max_field_size=exchange.MAX_HEAD_BYTES,
    )
