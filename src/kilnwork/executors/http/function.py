"""One attempt of a task with `spec.function`, which first waits until its Service is ready, and
sends the request again while no Pod serves it, if that is harmless.

Used by `service`. It may also end its work by a request of its own (docs/decisions/0037). In all
other respects it is an HTTP attempt.
"""

import asyncio
import math

from kilnwork.api import attempts, http_task, knative_task, reasons
from kilnwork.channel import messages
from kilnwork.executors.http import attempt, errors, exchange

PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses in seconds before a request that may be repeated is sent again."""

_NOT_SERVED = frozenset({502, 503})
"""Status codes with which the activator reports that it reached no Pod, or has no room for more
requests. 504 is not among them: it means that a time limit of the revision (`timeoutSeconds`) has
passed, which would happen again."""

_R = reasons.Reason


class FunctionAttempt(attempt.HttpAttempt):
    """One attempt of a task with `spec.function`."""

    _field = "spec.function"

    def __init__(
        self, run: messages.Run, tools: attempt.Tools, function: knative_task.FunctionTemplate
    ) -> None:
        super().__init__(run, tools)
        self._function = function
        self._holds_permit = False

    async def _carry_out(self) -> attempts.Outcome:
        tools, name = self._tools, self._function.service
        url = await tools.services.url(self._run.namespace, name, self._wait_for_service)
        self._given = self._function = self._function.with_base_url(url)
        if self.seen is not None:
            await tools.resumed.acquire()  # many attempts may have waited for the same Service
            self._holds_permit = True
            self._see(_R.CONNECTING)
        try:
            return await super()._carry_out()
        finally:
            self._give_permit_back()

    def _wait_for_service(self, reason: reasons.Reason, message: str) -> None:
        """Report once why the Service is not ready; the attempt takes no slot meanwhile."""
        if self.seen is None or (self.seen.reason, self.seen.message) != (reason, message):
            self._see(reason, message, parked=True)

    def _give_permit_back(self) -> None:
        if self._holds_permit:
            self._holds_permit = False
            self._tools.resumed.release()

    async def _request(
        self, request: exchange.Outgoing, *, until: float = math.inf
    ) -> tuple[exchange.Received, exchange.Outgoing]:
        try:
            return await super()._request(request, until=until)
        finally:
            self._give_permit_back()

    async def _send(self, request: exchange.Outgoing, *, until: float) -> exchange.Received:
        """Send the request; repeat it while no revision serves it, if that is harmless."""
        for pause_s in PAUSES_S:
            retry_after: str | None = None
            try:
                received = await super()._send(request, until=until)
                if received.status not in _NOT_SERVED or not self._may_send_again(request):
                    return received
                received.body.close()
                message, retry_after = f"status {received.status}", received.header("retry-after")
            except errors.AttemptFailed as error:
                if error.reason != _R.REQUEST_FAILED or not self._may_send_again(request):
                    raise
                message = str(error)
            if self._polled is None and self._halt is None:
                self._see(_R.CONNECTING, f"sent again: {message}")
            left_s = max(0.0, until - self._clock.monotonic())
            await asyncio.sleep(min(attempt.delay(retry_after, pause_s, self._tools), left_s))
        return await super()._send(request, until=until)

    def _may_send_again(self, request: exchange.Outgoing) -> bool:
        """Return whether a request may be repeated.

        It may if its method changes nothing, if it is declared idempotent, or if nothing of it was
        sent; the request that ends the work may always be repeated.
        """
        return (
            self._started is None
            or self._halt is not None
            or self._template.may_repeat
            or request.method in http_task.SAFE_METHODS
        )

    def _cancelling(self) -> tuple[exchange.Outgoing | None, float]:
        """Return the cancel request of the task, if it has one, instead of a request with another
        method to the polled URL.
        """
        cancel = self._function.cancel
        if cancel is None:
            return super()._cancelling()
        field = f"{self._field}.cancel"
        given = http_task.HttpTemplate(request=cancel.request)
        return self._built(self._substituted(given, field), field), cancel.timeout_seconds

    def _more_requests(self) -> tuple[http_task.HttpRequest, ...]:
        cancel = self._function.cancel
        return () if cancel is None else (cancel.request,)
