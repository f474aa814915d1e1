"""One TaskClaim: its newest version, the lease of its holder, and the manager's writes.

Used by `executor_adapter`. The lease starts with the last change of `status.renewTime` observed
here: clocks are not compared. Writes are merge patches of the manager's own fields with the uid as
a precondition, so that they neither overwrite concurrent changes of the holder nor affect a later
claim of the same name.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from kilnwork.api import kinds, task_claim
from kilnwork.kit import clock
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Seconds between retries of a write while the API server fails."""


class Claim:
    """One TaskClaim, updated with each change of the object. `first`: the first version that was
    seen.
    """

    def __init__(
        self, first: task_claim.TaskClaim, kube: client.Client, *, time: clock.Clock
    ) -> None:
        self.first = first
        self.uid = first.metadata.uid
        self.current: task_claim.TaskClaim | None = first
        """The newest version; None if the claim is deleted or being deleted."""
        self._kube, self._time = kube, time
        self._changed = asyncio.Event()
        self._renewed = time.monotonic()
        self._progress = first.status.progress

    def update(self, new: task_claim.TaskClaim | None) -> None:
        """Store a new version of the object, or None if it is deleted."""
        old = self.current
        self.current = None if new is None or new.metadata.deletion_timestamp else new
        if new is not None and old is not None and new.status.renew_time != old.status.renew_time:
            self.renew()
        self._changed.set()

    def renew(self) -> None:
        """Start a new full term of the lease, and wake coroutines that wait for the claim."""
        self._renewed = self._time.monotonic()
        self._changed.set()

    @property
    def loss_reason(self) -> str:
        """Return why no client holds the claim any more; "" while a client holds it."""
        if self.current is None:
            return "its TaskClaim was deleted"
        if self._left_s() > 0:
            return ""
        return f"its TaskClaim was not renewed for {self.first.spec.lease_seconds} s"

    def _left_s(self) -> float:
        return self._renewed + self.first.spec.lease_seconds - self._time.monotonic()

    async def wait(self) -> None:
        """Wait until the claim changes or its lease ends."""
        await self._wait(max(0.0, self._left_s()))

    async def _wait(self, timeout_s: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def outcome(
        self, on_progress: Callable[[float | None, str], None] | None = None
    ) -> task_claim.ClaimOutcome | None:
        """Wait for the outcome that the holder writes, and pass its progress on. Returns None if
        the holder is lost.
        """
        while True:
            seen = self.current
            if seen is not None and seen.status.outcome is not None:
                return seen.status.outcome
            if self.loss_reason:
                return None
            progress = None if seen is None else seen.status.progress
            if on_progress is not None and progress is not None and progress != self._progress:
                self._progress = progress
                on_progress(progress.fraction, progress.message)
            await self.wait()

    async def write_status(self, status: dict[str, Any]) -> None:
        """Write fields of the claim's status, unless the claim is gone.

        Raises Invalid if the API server will never accept them; retries after other errors.
        """
        name, namespace = self.first.metadata.name, self.first.metadata.namespace
        body = {"metadata": {"uid": self.uid}, "status": status}
        while self.current is not None:
            try:
                await self._kube.merge_patch(
                    kinds.TASK_CLAIMS, name, body, namespace, subresource="status"
                )
            except (errors.NotFound, errors.Conflict):
                return
            except errors.Invalid as error:
                if _is_other_object(error):
                    return
                raise
            except errors.KubeError as error:
                await self._back_off(error)
            else:
                return

    async def expire(self) -> None:
        """Delete the claim after `ttlSecondsAfterFinished`, unless another client has deleted
        it."""
        due = self._time.monotonic() + self.first.spec.ttl_seconds_after_finished
        while self.current is not None and (left := due - self._time.monotonic()) > 0:
            await self._wait(left)
        name, namespace = self.first.metadata.name, self.first.metadata.namespace
        while self.current is not None:
            try:
                await self._kube.delete(kinds.TASK_CLAIMS, name, namespace, uid=self.uid)
            except (errors.NotFound, errors.Conflict):
                return
            except errors.KubeError as error:
                await self._back_off(error)
            else:
                return

    async def _back_off(self, error: errors.KubeError) -> None:
        facts = {"claim": self.first.metadata.name, "error": str(error)}
        log.warning("cannot write TaskClaim; retrying", extra=facts)
        await asyncio.sleep(RETRY_S)


def _is_other_object(error: errors.Invalid) -> bool:
    """Return whether the API server refused a patch because the uid differs: the claim was deleted
    and created again.
    """
    causes = error.details.get("causes") or ()
    return any(cause.get("field") == "metadata.uid" for cause in causes)
