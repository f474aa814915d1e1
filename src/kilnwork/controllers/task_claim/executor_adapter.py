"""A TaskClaim presented to the dispatcher as a process of an executor with one slot, for one task.

Used by `controller`. It uses the same protocol as a program with `kilnwork.executor`, on a socket
of the manager, so that dispatch, kills, losses and fencing are the same. Its session is derived
from the uid of the claim: after a restart of the manager it reconnects with its task.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts, reasons, task, task_claim
from kilnwork.channel import messages
from kilnwork.controllers.task_claim import claim_object
from kilnwork.data import local_blobs
from kilnwork.executors import attempt_base, external, service
from kilnwork.kit import clock, ids
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors

log = logging.getLogger(__name__)

WAITING_AFTER_S = 1.0
"""Seconds without a task after which a claim is shown as `Waiting`; a claim that gets one sooner
needs no write."""

ACKNOWLEDGED_S = 10.0
"""Seconds to wait for the dispatcher's acknowledgement that a claim takes no more tasks."""

_R = reasons.Reason


class InvalidClaim(kit_errors.KilnError):
    """`status.task` of a claim was not written by the manager."""


class ClaimExecutor(service.ExecutorService):
    """The executor process that represents a claim: call `start`, await `finished`, then call
    `leave`.

    The constructor raises InvalidClaim.
    """

    def __init__(
        self, held: claim_object.Claim, manager: service.Manager, *, time: clock.Clock
    ) -> None:
        spec, metadata = held.first.spec, held.first.metadata
        super().__init__(
            service.ExecutorSettings(
                queue=external.queue(spec.executor),
                name=spec.holder or metadata.name,
                slots=1,
                namespace=metadata.namespace,
                pod_uid=f"claim/{held.uid}",
                session=hashlib.sha256(held.uid.encode()).digest()[:16],
            ),
            manager,
            time=time,
            entropy=ids.system_entropy(),
            on_failure=self._disconnected,
        )
        self.claim = held
        self.time = time
        self.ended = "", ""
        """Reason and message of the end, for the claim's status."""
        self._assigned = asyncio.Event()
        self._settled = asyncio.Event()
        if held.first.status.task is not None:
            self.begin(_restored_run(held.first, held.first.status.task))

    def make(self, run: messages.Run) -> "ClaimAttempt":
        self.retire()
        self._assigned.set()
        self.claim.renew()
        return ClaimAttempt(run, self)

    async def finished(self) -> tuple[str, str]:
        """Wait until the end of the task is stored or no client holds the claim; return reason
        and message."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAITING_AFTER_S):
                await self._assigned.wait()
        if not self._assigned.is_set() and not self.claim.first.status.phase:
            await self.claim.write_status({"phase": task_claim.Phase.WAITING})
        while not (self._assigned.is_set() or self._settled.is_set()):
            if lost := self.claim.loss_reason:
                self.retire()
                await self.link.acknowledged(timeout_s=ACKNOWLEDGED_S)
                return _R.WORKER_LOST.value, lost
            await self.claim.wait()
        await self._settled.wait()
        return self.ended

    def settled(self, ref: attempts.AttemptRef) -> None:
        known = ref in self._attempts
        super().settled(ref)
        if known:
            self.settle()

    def settle(self) -> None:
        """Record that the executor has nothing left to report."""
        self._settled.set()

    def _disconnected(self, text: str) -> None:
        """Record that the dispatcher has refused the executor, or is gone for good."""
        log.error("TaskClaim lost the dispatcher", extra={"claim": self.claim.uid, "error": text})
        self.ended = _R.WORKER_LOST.value, text
        self._settled.set()
        self.claim.renew()


class ClaimAttempt(external.ExternalAttempt):
    """The attempt of a claim, which the holder carries out and reports through the status of the
    claim.
    """

    def __init__(self, run: messages.Run, executor: ClaimExecutor) -> None:
        super().__init__(run, executor.link, executor.time, call=self._assign, keep=executor.keep)
        self._executor, self._claim = executor, executor.claim

    async def _assign(self, given: external.ClaimedTask) -> Any:
        """Pass the task to the holder and return its outcome (`external.Run`)."""
        if self._claim.first.status.task is None:
            shown = task_claim.AssignedTask(
                name=given.name,
                id=given.id,
                run=given.run,
                attempt=given.attempt,
                payload=given.payload,
                inputs=given.inputs,
                output_type=given.spec.output_type,
            )
            status = {"phase": task_claim.Phase.CLAIMED, "task": msgspec.to_builtins(shown)}
            try:
                await self._claim.write_status(status)
            except errors.Invalid as error:
                text = f"the task cannot be written into TaskClaim {self._name}: {error}"
                raise external.Failed(text, reason=_R.INVALID_SPEC, retry=False) from error
        outcome = await self._claim.outcome(given.progress)
        if outcome is None:
            raise external.Lost(self._claim.loss_reason)
        if outcome.state == "Succeeded":
            return _decode_result(outcome, given.spec.output_type)
        text = outcome.message or f"says the holder of TaskClaim {self._name}"
        raise external.Failed(text, reason=outcome.reason or _R.RAISED, retry=outcome.retry)

    async def _halted(self, halt: attempt_base.Halt) -> attempts.Outcome:
        """Ask the holder to stop and wait for its outcome, which proves that it has stopped."""
        proof = True
        if self._started is not None:
            current = self._claim.current
            if current is not None and current.status.outcome is None:
                status = {"phase": task_claim.Phase.KILLING, "killReason": halt.reason}
                await self._claim.write_status(status)
            proof = await self._claim.outcome() is not None
        return self._ended(halt.ending, halt.reason, halt.message, proof=proof)

    def abandon(self) -> None:
        super().abandon()
        if self.finished.is_set():
            self._executor.settle()

    def _report(self, outcome: attempts.Outcome) -> None:
        self._executor.ended = outcome.reason, outcome.message
        if self.silent:
            self._executor.settle()
        super()._report(outcome)

    @property
    def _name(self) -> str:
        return self._claim.first.metadata.name


class BlobDirectory:
    """A `service.BlobStore` in the manager's own directory of blobs. Without a directory, `put`
    raises `external.Lost`.
    """

    def __init__(self, directory: Path | None, namespace: str) -> None:
        self._directory = None if directory is None else directory / namespace

    def put(self, digest: bytes, file: Path) -> None:
        if self._directory is None:
            raise external.Lost("this manager keeps no blobs")
        with local_blobs.Blobs(self._directory, durable=True).writer() as new:
            new.write(file.read_bytes())
            new.commit()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _restored_run(seen: task_claim.TaskClaim, had: task_claim.AssignedTask) -> messages.Run:
    """Return the order to run the task that the holder had before a restart of the manager.

    Its payload is in the claim already and is not repeated. Raises InvalidClaim.
    """
    spec = task.TaskSpec(
        external=task.ExternalTask(executor=seen.spec.executor), output_type=had.output_type
    )
    try:  # the holder may write the claim's whole status, so it must be checked
        named = ids.task_id(had.id), had.run, had.attempt
        ref = msgspec.convert(named, attempts.AttemptRef)
    except ValueError as error:
        raise InvalidClaim(f"status.task names no attempt: {error}") from error
    return messages.Run(ref, seen.metadata.namespace, had.name, spec, None)


def _decode_result(outcome: task_claim.ClaimOutcome, output_type: str) -> Any:
    if outcome.result is msgspec.UNSET or output_type != "bytes":
        return None if outcome.result is msgspec.UNSET else outcome.result
    try:
        return base64.b64decode(outcome.result, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        text = f"outcome.result is no base64, and spec.outputType is bytes: {error}"
        raise external.Failed(text, reason=_R.INVALID_RESULT, retry=False) from error
