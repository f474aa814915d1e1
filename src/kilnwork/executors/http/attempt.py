"""One attempt of an HTTP task: its secrets, its request with redirects, polling after a response
202, and its result.

Used by `service`, one for each `Run`. Reports the start when there is a connection: a request that
must not be repeated is sent only after the journal has recorded the start.
"""

import asyncio
import contextlib
import dataclasses
import functools
import math
from email import utils
from typing import Any

import msgspec
import yarl

from kilnwork.api import (
    attempts,
    http_task,
    http_validation,
    json_limits,
    reasons,
    result_rule_compiler,
    substitution,
)
from kilnwork.channel import messages
from kilnwork.executors import attempt_base as base
from kilnwork.executors.http import (
    errors,
    exchange,
    har,
    knative_services,
    request_builder,
    response_rules,
    results,
    secret_values,
    shared_timer,
    tls_contexts,
)
from kilnwork.kit import clock, ids

MAX_HANDOVER_BYTES = 4096
MIN_POLL_S = 0.1
MAX_POLL_S = 3600.0
CANCEL_S = 10.0
"""Time limit in seconds of the request that ends the work on the server."""

STATUS_AFTER_S = 0.25
"""Delay in seconds after which an attempt first reports its progress: most attempts have ended
before that."""

_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes in response to a poll that say nothing about the work, so that it is polled
again."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_E = attempts.Ending
_R = reasons.Reason


class _Handover(msgspec.Struct, frozen=True):
    """The state that the next attempt needs to continue: the URL to poll for the result, and until
    when (wall clock).
    """

    url: str
    until: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The parts that all attempts of one process share.

    `late`: reports that are due after `STATUS_AFTER_S`. `polls`: limits how many polls are under
    way at once; `resumed`: limits the requests that were sent after waiting for their function.
    """

    link: base.Link
    sessions: exchange.Sessions
    contexts: tls_contexts.TlsContexts
    secrets: secret_values.SecretReader
    services: knative_services.Services
    store: results.ResultStore
    clock: clock.Clock
    entropy: ids.Entropy
    late: shared_timer.DelayedCalls
    polls: asyncio.Semaphore
    resumed: asyncio.Semaphore


class HttpAttempt(base.ProcessAttempt):
    """One attempt of a task with `spec.http`."""

    _field = "spec.http"

    def __init__(self, run: messages.Run, tools: Tools) -> None:
        super().__init__(run, tools.link, tools.clock)
        self._tools = tools
        self._given: http_task.HttpTemplate | None = run.spec.http
        self._template: http_task.HttpTemplate
        """Template of the request with its variables replaced."""
        self._values = secret_values.SecretValues({}, "", 0)
        self._archive = har.Archive()
        self._exchange: exchange.Exchange | None = None
        self._called_back: asyncio.Future[messages.Callback] | None = None
        """Future for the callback, created before anything is sent, since the result may arrive
        before the response."""
        self._polled: exchange.Outgoing | None = None
        self._poll_until = 0.0
        self._origin: yarl.URL | None = None
        """Origin of the first request; secrets are sent to no other origin."""
        self._status_due = False

    def _report(self, outcome: attempts.Outcome) -> None:
        self._cancel_status()
        if self._started is not None and not self.silent:
            self.log = self._archive.encode()
            self.send_log(0)
        super()._report(outcome)

    def _ended(
        self, ending: attempts.Ending, reason: str, message: str = "", **more: Any
    ) -> attempts.Outcome:
        """Return the outcome of an attempt, with secrets removed from its message, since a server
        may repeat them.
        """
        return super()._ended(ending, reason, self._hidden(message), **more)

    def _see(self, reason: reasons.Reason, message: str = "", **more: Any) -> None:
        super()._see(reason, self._hidden(message), **more)

    def _hidden(self, text: str) -> str:
        revealed = self._values.revealed
        return har.hidden(text, revealed) if text and revealed else text

    def called_back(self, callback: messages.Callback) -> None:
        """Accept the result that was posted to the callback URL of the attempt."""
        if self._called_back is not None and not self._called_back.done():
            self._called_back.set_result(callback)

    async def _outcome(self) -> attempts.Outcome:
        try:
            return await super()._outcome()
        except errors.AttemptFailed as error:
            proof = await self._cut()
            ending = _E.LOST if error.is_loss else _E.FAILED
            message = self._hidden(str(error))[: error.max_length]
            return self._ended(ending, error.reason, message, proof=proof)

    async def _cut(self) -> bool:
        return self._exchange is None or await self._exchange.cut()

    async def _halted(self, halt: base.Halt) -> attempts.Outcome:
        proof = await self._cut()
        message = halt.message
        if self._started is not None and halt.ending is _E.STOPPED and not self.silent:
            uncertainty = await self._cancel_elsewhere()
            proof = proof and not uncertainty
            message = message or uncertainty
        return self._ended(halt.ending, halt.reason, message, proof=proof)

    async def _cancel_elsewhere(self) -> str:
        """Ask the server to end the work; return why its end is uncertain, or "" if it is certain
        or there is nothing to end.
        """
        try:
            request, limit = self._cancelling()
            if request is None:
                return ""
            async with asyncio.timeout(limit):
                received = await self._send(request, until=self._deadline())
        except (errors.AttemptFailed, TimeoutError) as error:
            return f"the request to end it failed: {str(error) or 'no response'}"
        received.body.close()
        if received.status < 300 or received.status in (404, 410):
            return ""
        return f"the request to end it was responded to with status {received.status}"

    def _cancelling(self) -> tuple[exchange.Outgoing | None, float]:
        """Return the request that asks the server to end the work, or None, and the time limit of
        the request.
        """
        polling, polled = self._template.polling, self._polled
        if polling is None or polled is None or not polling.cancel_method:
            return None, CANCEL_S
        return msgspec.structs.replace(polled, method=polling.cancel_method), CANCEL_S

    async def _carry_out(self) -> attempts.Outcome:
        loop = asyncio.get_running_loop()
        self._status_due = True
        self._tools.late.add(self._report_status)
        request = await self._prepare()
        if self._run.handover:
            return await self._go_on(request)
        if self._template.callback is not None:
            self._called_back = loop.create_future()
        received, request = await self._request(request)
        verdict = await self._judge(received)
        if isinstance(verdict, response_rules.StillRunning):
            wait = self._accepted(received, request, verdict)
            received.body.close()
            del received, request, verdict  # save memory: ten thousand attempts may wait
            if self._called_back is not None:
                return await self._wait_for_callback(self._called_back)
            received, verdict = await self._poll(wait)
        return await self._succeeded(received, verdict)

    async def _go_on(self, request: exchange.Outgoing) -> attempts.Outcome:
        """Poll for the result of work that an earlier attempt has begun on the server."""
        handed = msgspec.json.decode(self._run.handover, type=_Handover)
        self._started = self._clock.wall()
        self._report_status()
        self._polled, self._poll_until = _asking(request, handed.url), handed.until
        self._see_polled()
        return await self._succeeded(*await self._poll("0"))

    async def _succeeded(
        self, received: exchange.Received, verdict: response_rules.Success
    ) -> attempts.Outcome:
        return await self._end_with(verdict, received.body, f"status {received.status}")

    async def _end_with(
        self, verdict: response_rules.Success, body: exchange.Body, message: str
    ) -> attempts.Outcome:
        """Return the outcome for a successful response, which is a failure if the result cannot be
        stored.
        """
        try:
            result = await results.payload(
                verdict, body, store=self._tools.store, namespace=self._run.namespace
            )
        finally:
            body.close()
        return self._ended(_E.SUCCEEDED, _R.SUCCEEDED, message, result=result)

    def _accepted(
        self,
        received: exchange.Received,
        request: exchange.Outgoing,
        verdict: response_rules.StillRunning,
    ) -> str | None:
        """Report that the work continues on the server after the response; return its `Retry-After`
        if the result is polled.
        """
        if self._called_back is not None:
            message = f"{request.url.host} will call back"
            self._see(_R.WAITING_FOR_RESULT, message, parked=True)
            return None
        headers = {name.lower(): value for name, value in received.headers}
        url = response_rules.poll_url(self._template, headers, verdict.document)
        if not url:
            message = (
                f"status {received.status} names no URL to ask for the result: neither its header"
                " Location, nor Operation-Location, nor polling.location in its body"
            )
            raise errors.AttemptFailed(_R.INVALID_RESPONSE, message)
        self._polled = _asking(request, url)
        lasts_s = 0.0 if self._template.polling is None else self._template.polling.timeout_seconds
        self._poll_until = self._tools.clock.wall() + lasts_s
        self._see_polled()
        return headers.get("retry-after")

    def _see_polled(self, failed: str = "") -> None:
        """Report that the attempt polls for the result, and the URL at which another executor can
        continue.

        The URL is left out if it contains a secret, which must not reach a journal.
        """
        polled = self._polled
        if polled is None:
            return
        url = str(polled.url)
        handover = msgspec.json.encode(_Handover(url, self._poll_until))
        if len(handover) > MAX_HANDOVER_BYTES or self._hidden(url) != url:
            handover = b""
        message = f"the last poll failed: {failed}" if failed else f"polls {polled.url.host}"
        self._see(_R.WAITING_FOR_RESULT, message, parked=True, handover=handover)

    async def _prepare(self) -> exchange.Outgoing:
        run, given = self._run, self._given
        if given is None:
            raise errors.AttemptFailed(_R.INVALID_SPEC, f"the task has no {self._field}")
        self._template = self._substituted(given, self._field)
        self._values = await secret_values.read(
            self._tools.secrets, run.namespace, self._template, *self._more_requests()
        )
        if run.callback:
            self._values.revealed.add(run.callback)
        request = self._built(self._template, self._field)
        self._origin = request.url.origin()
        return request

    def _more_requests(self) -> tuple[http_task.HttpRequest, ...]:
        """Return the requests of the task besides its main request; they may name Secrets too."""
        return ()

    def _substituted(self, given: http_task.HttpTemplate, field: str) -> http_task.HttpTemplate:
        try:
            return http_validation.substitute(given, self._variables, field)
        except (
            result_rule_compiler.InvalidRules,
            substitution.InvalidTemplate,
            json_limits.LimitExceeded,
            msgspec.ValidationError,
        ) as error:
            raise errors.AttemptFailed(_R.INVALID_SPEC, str(error)) from error

    def _built(self, template: http_task.HttpTemplate, field: str) -> exchange.Outgoing:
        run, ref = self._run, self.ref
        try:
            return request_builder.build_request(
                template,
                self._values.value,
                key=f"{ids.task_text(ref.task)}-{ref.run}",
                callback=run.callback if template.callback is not None else "",
            )
        except ValueError as error:
            raise errors.AttemptFailed(_R.INVALID_SPEC, f"{field}.request: {error}") from error

    def _variables(self) -> dict[str, Any]:
        return {**super()._variables(), http_task.CALLBACK_URL: self._run.callback}

    async def _request(
        self, request: exchange.Outgoing, *, until: float = math.inf
    ) -> tuple[exchange.Received, exchange.Outgoing]:
        """Send a request and follow redirects, at most until `until` (monotonic).

        Returns the last response, and the request to which it responds.
        """
        until = min(until, self._deadline())
        left = self._template.redirects.follow
        while True:
            received = await self._send(request, until=until)
            if received.status not in _REDIRECTS or not received.redirect or not left:
                return received, request
            received.body.close()
            left -= 1
            request = _next(request, received)

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._template.timeout.total_timeout

    async def _send(self, request: exchange.Outgoing, *, until: float) -> exchange.Received:
        """Send one request, and add the request and its response to the archive. `until`: monotonic
        deadline.
        """
        tools, template = self._tools, self._template
        tls = self._tls(request)
        terms = exchange.Terms(
            timeout=template.timeout,
            until=until,
            max_bytes=template.response.max_bytes,
            tls=None
            if request.url.scheme == "http"
            else tools.contexts.context(tls, self._values, f"{self._field}.tls"),
            server_name=tls.server_name or None,
        )
        self._exchange = exchange.Exchange(
            tools.sessions,
            terms,
            tools.clock,
            repeatable=template.may_repeat,
            on_connected=self._connected,
        )
        keep = functools.partial(
            self._archive.add,
            request,
            began=tools.clock.wall(),
            secrets=self._values.revealed,
        )
        try:
            received = await self._exchange.run(request)
        except errors.AttemptFailed as error:
            keep(None, error=str(error))
            raise
        except asyncio.CancelledError:
            keep(None, error="cut off")
            raise
        self._exchange = None
        keep(received, error="")
        return received

    def _tls(self, request: exchange.Outgoing) -> http_task.Tls:
        """Return the TLS settings of a request; only for the first origin do they contain the
        client certificate and the server name.
        """
        given = self._template.tls
        if request.url.origin() == self._origin:
            return given
        return msgspec.structs.replace(given, client_certificate_secret="", server_name="")

    async def _connected(self) -> None:
        """Report the start of the attempt, before the first byte of the request is sent.

        For repeatable requests the report of the end includes the start, unless the request takes
        longer.
        """
        if self._started is not None:
            return
        self._started = at = self._clock.wall()
        if not self._template.may_repeat:
            self._cancel_status()
            await self._tools.link.store(lambda serial: messages.Started(serial, self.ref, at))
            self._see_connected()
        elif not self._status_due:
            self._report_status()

    def _report_status(self) -> None:
        """Report the current state of the attempt to the dispatcher."""
        self._cancel_status()
        at = self._started
        if at is None:
            self._see(_R.CONNECTING)
        else:
            self._tools.link.report(lambda serial: messages.Started(serial, self.ref, at))
            self._see_connected()

    def _cancel_status(self) -> None:
        if self._status_due:
            self._tools.late.cancel(self._report_status)
            self._status_due = False

    def _see_connected(self) -> None:
        if self.seen is not None and self.seen.reason == _R.CONNECTING:
            self._see(_R.STARTED)

    async def _judge(
        self, received: exchange.Received
    ) -> response_rules.Success | response_rules.StillRunning:
        try:
            return await results.judge_response(
                self._template, received, output_type=self._run.spec.output_type
            )
        except errors.AttemptFailed as error:
            redirects = received.status in _REDIRECTS and received.redirect
            if error.reason != _R.RESPONSE_REJECTED or not redirects:
                raise
            left = self._template.redirects.follow
            raised = "raise that, or " if left < http_task.MAX_REDIRECTS else ""
            message = (
                f"status {received.status}, and {self._field}.redirects.follow is"
                f" {left}: {raised}request {received.redirect}"
            )
            raise errors.AttemptFailed(error.reason, message) from error

    async def _poll(self, wait: str | None) -> tuple[exchange.Received, response_rules.Success]:
        """Poll until the work is done; return the last response and its verdict.

        `wait`: the `Retry-After` of the previous response.
        """
        polling, polled = self._template.polling, self._polled
        if polling is None or polled is None:
            raise errors.AttemptFailed(_R.INVALID_SPEC, "the task says nothing about polling")
        clock = self._tools.clock
        until = clock.monotonic() + self._poll_until - clock.wall()
        while True:
            pause_s = delay(wait, polling.interval_seconds, self._tools)
            if clock.monotonic() + pause_s > until:
                message = (
                    f"no result within polling.timeoutSeconds, {polling.timeout_seconds:g} s:"
                    f" the next poll would be in {pause_s:.3g} s"
                )
                raise errors.AttemptFailed(_R.REQUEST_TIMED_OUT, message)
            await asyncio.sleep(pause_s)
            try:
                async with self._tools.polls:
                    response, _ = await self._request(polled, until=until)
            except errors.AttemptFailed as error:
                if error.reason not in (_R.REQUEST_FAILED, _R.REQUEST_TIMED_OUT):
                    raise
                wait = None
                self._see_polled(str(error))
                continue
            wait = response.header("retry-after")
            if response.status in _TRY_AGAIN:
                response.body.close()
                continue
            verdict = await self._judge(response)
            if isinstance(verdict, response_rules.Success):
                return response, verdict
            response.body.close()

    async def _wait_for_callback(
        self, called_back: asyncio.Future[messages.Callback]
    ) -> attempts.Outcome:
        callback = self._template.callback
        limit = 0.0 if callback is None else callback.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                self._callback = given = await called_back
        except TimeoutError as error:
            message = f"no callback within callback.timeoutSeconds, {limit:g} s"
            raise errors.AttemptFailed(_R.REQUEST_TIMED_OUT, message) from error
        if len(given.body) > (most := self._template.response.max_bytes):
            message = f"the body of the callback has more than {most} bytes"
            raise errors.AttemptFailed(_R.RESPONSE_TOO_LARGE, message)
        headers, output_type = [("Content-Type", given.media_type)], self._run.spec.output_type
        kind = response_rules.body_format(self._template.response, output_type, given.media_type)
        verdict = await results.check_body(
            self._template, 200, headers, given.body, kind=kind, waits=False
        )
        if isinstance(verdict, response_rules.StillRunning):
            message = "the callback says that the work goes on"
            raise errors.AttemptFailed(_R.INVALID_RESPONSE, message)
        body = exchange.Body()
        body.write(given.body)
        return await self._end_with(verdict, body, "called back")


def _next(request: exchange.Outgoing, received: exchange.Received) -> exchange.Outgoing:
    try:
        return request_builder.build_redirected(request, received.status, received.redirect)
    except ValueError as error:
        message = f"status {received.status} redirects to {error}"
        raise errors.AttemptFailed(_R.INVALID_RESPONSE, message) from error


def _asking(request: exchange.Outgoing, url: str) -> exchange.Outgoing:
    try:
        return request_builder.build_poll(request, url)
    except ValueError as error:
        message = f"the result is said to be at {error}"
        raise errors.AttemptFailed(_R.INVALID_RESPONSE, message) from error


def delay(retry_after: str | None, interval_s: float, tools: Tools) -> float:
    """Return the seconds until the next poll: the server's `Retry-After` (RFC 9110, 10.2.3), else
    the interval, varied by up to a tenth.
    """
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(max(float(text), MIN_POLL_S), MAX_POLL_S)
    if text:
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # not a valid date
            due = utils.parsedate_to_datetime(text).timestamp()
            return min(max(due - tools.clock.wall(), MIN_POLL_S), MAX_POLL_S)
    return interval_s * (0.9 + 0.2 * tools.entropy.random())
