"""The reconciler of attempts: passes instructions to executors, and observations to the
dispatcher.

Used by `assembly`, one for all executors. Each pass over an attempt starts from the observed
state, so it may be interrupted anywhere: by an error, after which it is retried, or by the end of
the manager, after which the dispatcher sends the same instructions again. An attempt that an
executor still has although the dispatcher has settled it (the manager ended in between) is ended
and released.
"""

import functools

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.controllers import ports
from kilnwork.controllers.attempts import log_copier
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import instructions
from kilnwork.executors import port, registry
from kilnwork.kit import ids
from kilnwork.kube import errors, queue

CAPACITY = 1000
"""Maximum number of concurrent attempts of an executor that does not run in workers: most control
planes cannot handle more than some thousand Pods."""

MAX_MESSAGE_LENGTH = 4096
"""Maximum length of a task's message, as in `dispatch.hub`; longer messages are cut at the end."""

LEFTOVER_GRACE_S = 1.0
"""Grace period of a settled attempt that still runs: its outcome is already decided."""

_E = attempts.Ending


class _TrackedAttempt(msgspec.Struct):
    """An attempt in the reconciler's memory. `settled`: whether the dispatcher needs no report any
    more, because it has stored the outcome, or because the attempt is a leftover.
    """

    attempt: port.Attempt
    stop: port.Stop | None = None
    ensured: bool = False
    reported_start: bool = False
    settled: bool = False


class AttemptReconciler:
    """Reconciler of the attempts of all executors in a registry, for a
    `kube.controller.Controller`."""

    def __init__(self, executors: registry.Registry, work: queue.WorkQueue) -> None:
        self._executors = executors
        self._queue = work
        self._held: dict[tuple[str, str], _TrackedAttempt] = {}
        self._links: dict[str, ports.ExecutorLink] = {}
        self.outputs = log_copier.OutputCopies(self._links.__getitem__)
        self._hub: ports.AttemptHub | None = None
        self._woken_early: set[tuple[str, attempts.AttemptRef]] = set()

    async def start(self, hub: ports.AttemptHub) -> None:
        """Connect all executors to the dispatcher, and watch the attempts of executors that can
        report changes.
        """
        for executor in self._executors:
            if isinstance(executor, port.WatchesAttempts):
                executor.watch(functools.partial(self._on_wake, executor.name))
        for executor in self._executors:
            receive = functools.partial(self._on_order, executor.name)
            if isinstance(executor, port.RunsInWorkers):
                self._links[executor.name] = hub.containers
                hub.containers.join(receive)
            else:
                self._links[executor.name] = await hub.join_executor(
                    executor.name, capacity=CAPACITY, receive=receive
                )
        self._hub = hub
        early, self._woken_early = self._woken_early, set()
        for name, ref in early:
            self._on_wake(name, ref)

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        """Make one pass over one attempt; return in how many seconds to make the next one, if no
        change comes first.

        This replaces the time that the previous pass returned.
        """
        self._queue.cancel(key)
        if key not in self._held:  # the attempt changed while it was being released
            self._on_wake(key[0], attempts.AttemptRef.parse(key[1]))
        held = self._held.get(key)
        if held is None:
            return None
        executor, link = self._executors[key[0]], self._links[key[0]]
        try:
            seen = await self._observe(executor, held)
            if not held.settled:
                await self._report(executor, link, held, seen)
        except Exception as error:
            if not held.settled and not isinstance(error, errors.Conflict):
                link.observed(held.attempt.ref, _observed_failure(error))
            raise
        if seen.outcome is not None:
            await executor.release(held.attempt)
            self._held.pop(key, None)
            return None
        return seen.check_s

    async def _observe(self, executor: port.Executor, held: _TrackedAttempt) -> port.Observation:
        if held.stop is not None:
            return await executor.stop(held.attempt, held.stop)
        if held.ensured:
            return await executor.observe(held.attempt)
        seen = await executor.ensure(held.attempt)
        held.ensured = seen.exists
        return seen

    async def _report(
        self,
        executor: port.Executor,
        link: ports.ExecutorLink,
        held: _TrackedAttempt,
        seen: port.Observation,
    ) -> None:
        ref, observed = held.attempt.ref, _make_observed(seen.reason, seen.message, seen.node)
        if seen.outcome is not None:
            outcome = await self._with_result(executor, held.attempt, seen.outcome)
            await self.outputs.finish(ref)
            link.observed(ref, observed)  # the node of the attempt is stored with the next report
            await link.finished(ref, outcome)
            self.outputs.forget(ref)
            held.settled = True
            return
        link.observed(ref, observed)
        if seen.started is not None and not held.reported_start:
            link.started(ref, at=seen.started, container=seen.container)
            held.reported_start = True

    async def _with_result(
        self, executor: port.Executor, attempt: port.Attempt, outcome: attempts.Outcome
    ) -> attempts.Outcome:
        if outcome.ending is not _E.SUCCEEDED:
            return outcome
        try:
            result = await executor.result(attempt)
        except port.ResultError as error:
            ending = _E.LOST if error.is_loss else _E.FAILED
            return msgspec.structs.replace(
                outcome, ending=ending, reason=error.reason, message=str(error)
            )
        return msgspec.structs.replace(outcome, result=result)

    def _on_order(self, executor: str, order: instructions.ForExecutor) -> None:
        key = (executor, str(order.ref))
        known = self._held.get(key)
        if not isinstance(order, instructions.StopAttempt):
            if known is None or known.settled:
                held = self._held[key] = _TrackedAttempt(_attempt(order))
                self.outputs.begin(self._executors[executor], held.attempt)
            elif isinstance(order, instructions.RunContainer):
                known.reported_start = (
                    False  # a worker that requests it again has not received the report
                )
        else:
            if known is None:
                return
            known.stop = port.Stop(order.grace_s, order.reason)
        self._queue.add(key)

    def _on_wake(self, executor: str, ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None:
        """Queue an attempt that has changed, whether it is tracked or was settled by the
        dispatcher.
        """
        key = (executor, str(ref))
        if key in self._held:
            self._queue.add(key, after_s)
            self.outputs.changed(ref)
        elif self._hub is None:
            self._woken_early.add((executor, ref))
        elif self._hub.holds(ref):
            return  # the worker that runs it will request it
        elif isinstance(watching := self._executors[executor], port.WatchesAttempts):
            left = watching.leftover(ref, known=True)
            if left is not None and self._hub.view(ref.task) is None:  # reads the disk
                left = watching.leftover(ref, known=False)
            if left is not None:
                stop = port.Stop(LEFTOVER_GRACE_S, reasons.Reason.REPLACED)
                self._held[key] = _TrackedAttempt(left, stop, settled=True)
                self._queue.add(key)


def _observed_failure(error: Exception) -> model.Observed:
    """Return the state to show for a task whose executor fails; the controller logs the error
    and retries."""
    if isinstance(error, errors.KubeError):
        return _make_observed(reasons.Reason.EXECUTOR_UNAVAILABLE, str(error))
    text = f"the manager tries again after {type(error).__name__}: {error}"
    return _make_observed(reasons.Reason.INTERNAL_ERROR, text)


def _make_observed(reason: str, message: str, node: str = "") -> model.Observed:
    return model.Observed(reason, message[:MAX_MESSAGE_LENGTH], node)


def _attempt(order: instructions.RunAttempt | instructions.RunContainer) -> port.Attempt:
    record, place = order.task, None
    if isinstance(order, instructions.RunContainer):
        place = port.WorkerPod(pod=order.pod, pod_uid=order.pod_uid, environment=order.environment)
    return port.Attempt(
        ref=order.ref,
        namespace=record.namespace,
        name=record.name or ids.task_text(record.id),
        owner_uid=ids.task_text(record.id) if record.declared else "",
        spec=record.spec,
        inputs=record.input_document,
        began=record.attempt_started is not None,
        place=place,
    )
