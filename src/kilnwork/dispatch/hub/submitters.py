"""Turns messages of drivers, slots and calls in Pods into inputs of the machine.

Used by the hub; each frame becomes one input. All of these peers submit calls and watch tasks. A
slot also reports on the calls that it was given, and the process of a call in a Pod on that call.
Calls that may already exist are looked up in the store first.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kilnwork.api import attempts, calls, reasons
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import attempt_logs, child_request_rules, commits, links, retry_requests
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import coroutines

MAX_MESSAGE_LENGTH = 4096
"""Maximum characters of a peer's message that are kept."""

Handlers = dict[type, Callable[[links.Link, Any], None]]

Pruner = Callable[[model.Pruning, bool], Awaitable[model.Pruned]]
"""Forgets finished tasks, or only counts them if the second argument is True, as `Hub.prune`."""

_NO_PRUNING = "drivers of this dispatcher may not prune: use `kiln prune` with its server"


class Submitters:
    """Handles messages of drivers, slots and call processes that have joined.

    `prune`: the function that carries out a Prune; None: drivers may not prune.
    """

    def __init__(
        self,
        core: commits.Core,
        logs: attempt_logs.AttemptLogs,
        *,
        retries: retry_requests.RetryRequests,
        background: coroutines.BackgroundWork,
        variables: Callable[[links.Link, messages.GetVariables], None],
        prune: Pruner | None,
    ) -> None:
        self._pruner = prune
        self._core = core
        self._logs = logs
        self._retries = retries
        self._background = background
        all_submit: Handlers = {
            messages.Template: self._template,
            messages.Forget: self._forget,
            messages.Submit: self._submit,
            messages.Watch: self._watch,
            messages.Cancel: self._cancel,
            messages.Retry: self._retry,
        }
        self._of_drivers: Handlers = {
            **all_submit,
            messages.DriverHello: _second_hello,
            messages.Prune: self._prune,
        }
        self._of_calls: Handlers = {
            **all_submit,
            messages.AttemptHello: _second_hello,
            messages.CallsEnded: self._done,
            messages.Yielded: self._yielded,
            messages.Progress: self._progress,
        }
        self._of_slots: Handlers = {
            **all_submit,
            messages.SlotHello: _second_hello,
            messages.Started: self._started,
            messages.CallsEnded: self._done,
            messages.Returned: self._returned,
            messages.Waiting: self._waiting,
            messages.Resumed: self._resumed,
            messages.Yielded: self._yielded,
            messages.Log: self._log,
            messages.Progress: self._progress,
            messages.GetVariables: variables,
        }

    def attach(self, link: links.Link, hello: messages.DriverHello) -> links.Receive:
        """Let an authenticated driver join; return the function that receives its messages."""
        self._core.apply(inputs.Attach(link.number, hello.session, hello.namespace))
        return self.from_driver

    def join(self, link: links.Link, hello: messages.SlotHello) -> links.Receive:
        """Let an authenticated slot join; return the function that receives its messages.

        The machine decides which attempts the slot keeps.
        """
        self._core.apply(inputs.SlotJoined(link.number, hello.slot, hello.running))
        return self.from_slot

    def join_call(self, link: links.Link, hello: messages.AttemptHello) -> links.Receive:
        """Let the authenticated process of a call join; return the function that receives its
        messages.
        """
        self._core.apply(inputs.JoinCall(link.number, hello.ref, hello.namespace))
        return self._from_call

    def from_driver(self, link: links.Link, message: messages.FromDriver) -> None:
        """Handle a message of a driver."""
        self._of_drivers[type(message)](link, message)

    def from_slot(self, link: links.Link, message: messages.FromSlot) -> None:
        """Handle a message of a slot."""
        self._of_slots[type(message)](link, message)

    def _from_call(self, link: links.Link, message: messages.FromAttempt) -> None:
        """Handle a message of the process of a call.

        The machine checks that the message is about the attempt of that process.
        """
        handler = self._of_calls.get(type(message))
        if handler is None:
            kind = type(message).__name__
            link.refuse("Malformed", f"{kind} is not for the process of a call", retry=False)
            return
        handler(link, message)

    def _template(self, link: links.Link, message: messages.Template) -> None:
        executors = self._core.limits.executors
        refusal = child_request_rules.template_refusal(message.spec, executors=executors)
        if refusal:
            link.refuse("Invalid", f"template {message.number}: {refusal}", retry=False)
            return
        self._core.apply(inputs.Define(link.number, message.number, message.spec))

    def _forget(self, link: links.Link, message: messages.Forget) -> None:
        self._core.apply(inputs.Undefine(link.number, message.numbers))

    def _submit(self, link: links.Link, message: messages.Submit) -> None:
        items = message.items
        for item in items:
            if len(item.arguments.data) > attempts.MAX_INLINE_BYTES:
                text = f"arguments of call {item.number} are not a blob, but larger than what fits"
                link.refuse("TooLarge", text, retry=False)
                return
        request = inputs.SubmitCalls(link.number, items)
        lookups = self._core.machine.lookups(request, again=message.again)
        if lookups is not None:
            # There is no await between reading and applying: a task leaves memory only when its end
            # is on disk, so memory or journal knows it.
            reader = self._core.reader
            values = reader.values(lookups.namespace, lookups.values)
            cached = reader.cached(lookups, now=self._core.clock.wall()) if lookups.cached else {}
            known = reader.stored_calls(lookups)
            request = inputs.SubmitCalls(link.number, items, known, values, cached)
        self._core.apply(request)

    def _watch(self, link: links.Link, message: messages.Watch) -> None:
        request = inputs.WatchTasks(link.number, message.items)
        lookups = self._core.machine.lookups(request)
        if lookups is not None:
            values = self._core.reader.values(lookups.namespace, lookups.values)
            request = inputs.WatchTasks(link.number, message.items, values)
        self._core.apply(request)

    def _cancel(self, link: links.Link, message: messages.Cancel) -> None:
        # The machine leaves out tasks of other namespaces.
        self._core.apply(inputs.CancelTasks(link.number, message.tasks, message.recursive))

    def _retry(self, link: links.Link, message: messages.Retry) -> None:
        self._background.start("retry", self._retry_now(link, message))

    async def _retry_now(self, link: links.Link, message: messages.Retry) -> None:
        """Carry out a Retry message, and respond with Retried.

        The response is sent when the new run is on disk, or when the request is refused. The result
        of the new run follows as soon as it is final.
        """
        submitter = self._core.machine.memory.submitters.get(link.number)
        if submitter is None:
            return
        refusal = ""
        try:
            await self._retries.ask(message, submitter.namespace)
            # Not before: the old run is over, so watching it would send its result at once.
            watched = calls.Watched(message.number, message.task)
            self._watch(link, messages.Watch((watched,)))
        except errors.RunRefused as error:
            refusal = str(error)
        # The new run may be on disk: the driver asks the next dispatcher.
        except errors.HubStopped:
            return
        # After the Watch is applied; its result goes with a later batch, so this arrives first.
        link.write_all([messages.Retried(message.number, refusal)])

    def _prune(self, link: links.Link, message: messages.Prune) -> None:
        self._background.start("prune", self._prune_now(link, message))

    async def _prune_now(self, link: links.Link, message: messages.Prune) -> None:
        submitter = self._core.machine.memory.submitters.get(link.number)
        if submitter is None:
            return
        if self._pruner is None:
            link.write_all([messages.Pruned(message.number, refusal=_NO_PRUNING)])
            return
        asked = model.Pruning(
            older_s=message.older_s,
            namespace=submitter.namespace,
            keep=message.keep,
            free_bytes=message.free_bytes,
            keyed=message.keyed,
        )
        try:
            pruned = await self._pruner(asked, message.dry_run)
        except errors.HubStopped:
            return
        link.write_all([messages.Pruned(message.number, pruned.tasks, pruned.size_bytes)])

    def _started(self, link: links.Link, message: messages.Started) -> None:
        self._core.apply(inputs.Started(link.number, message.serial, message.ref, message.at))

    def _done(self, link: links.Link, message: messages.CallsEnded) -> None:
        ends = message.ends
        for end in ends:
            payload = end.payload
            if (payload is not None and len(payload.data) > attempts.MAX_INLINE_BYTES) or len(
                end.message
            ) > MAX_MESSAGE_LENGTH:
                ends = tuple(map(_bounded, ends))
                break
        request = inputs.CallsEnded(link.number, message.serial, ends)
        # There is no await up to `apply`, as in `_submit`.
        lookups = self._core.machine.lookups(request)
        if lookups is not None:
            values = self._core.reader.values(lookups.namespace, lookups.values)
            request = inputs.CallsEnded(link.number, message.serial, ends, values)
        self._core.apply(request)
        # Most calls print nothing, and millions of them end here.
        if self._logs.remembers:
            for end in ends:
                self._logs.forget(end.ref)

    def _returned(self, link: links.Link, message: messages.Returned) -> None:
        self._core.apply(inputs.CallsReturned(link.number, message.refs))

    def _waiting(self, link: links.Link, message: messages.Waiting) -> None:
        self._core.apply(
            inputs.Waiting(
                link=link.number,
                ref=message.ref,
                tasks=message.tasks,
                in_place=message.in_place,
                first=message.first,
                more=message.more,
            )
        )

    def _resumed(self, link: links.Link, message: messages.Resumed) -> None:
        self._core.apply(inputs.Resumed(link.number, message.ref))

    def _yielded(self, link: links.Link, message: messages.Yielded) -> None:
        self._core.apply(inputs.Yielded(link.number, message.ref, message.index, message.payload))

    def _log(self, link: links.Link, message: messages.Log) -> None:
        if self._core.machine.held_by(link.number, message.ref) is not None:
            self._logs.append(message.ref, message.offset, message.data)

    def _progress(self, link: links.Link, message: messages.Progress) -> None:
        progress = model.Progress(message.fraction, message.message[:MAX_MESSAGE_LENGTH])
        self._core.apply(inputs.AttemptProgress(link.number, message.ref, progress))


def _second_hello(
    link: links.Link, _: messages.DriverHello | messages.SlotHello | messages.AttemptHello
) -> None:
    link.refuse("Malformed", "a second Hello", retry=False)


def _bounded(end: calls.CallEnd) -> calls.CallEnd:
    """Return a CallEnd that may be stored: with its message truncated.

    If the result is too large, the call fails with RESULT_TOO_LARGE.
    """
    payload = end.payload
    if payload is not None and len(payload.data) > attempts.MAX_INLINE_BYTES:
        message = f"{len(payload.data)} bytes; at most {attempts.MAX_INLINE_BYTES} are kept"
        return msgspec.structs.replace(
            end,
            ending=attempts.Ending.FAILED,
            reason=reasons.Reason.RESULT_TOO_LARGE,
            message=message,
            payload=None,
        )
    return msgspec.structs.replace(end, message=end.message[:MAX_MESSAGE_LENGTH])
