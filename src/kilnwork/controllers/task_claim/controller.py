"""The TaskClaim controller: one coroutine task for each claim, until its deletion.

Used by `assembly`. Nothing is polled: a coroutine task wakes when its claim changes, when its
lease ends, and when the dispatcher has a message for it.
"""

import functools
import secrets
from collections.abc import Callable
from pathlib import Path

from kilnwork.api import reasons, task_claim
from kilnwork.channel import blocking_link as channel_client
from kilnwork.channel import errors as channel_errors
from kilnwork.controllers.task_claim import claim_object, executor_adapter
from kilnwork.executors import service
from kilnwork.kit import clock, coroutines
from kilnwork.kube import cache, client, objects


class TaskClaims:
    """The controller of all TaskClaims. `changed` is for a reflector; claims are served only after
    `start`.

    `token`: the credential of claims at the dispatcher, which listens on `socket`; the API server
    has already checked who may claim. `blobs`: the manager's directory of blobs.
    """

    def __init__(
        self,
        kube: client.Client,
        known: cache.Cache[task_claim.TaskClaim],
        *,
        socket: Path,
        blobs: Path | None,
        time: clock.Clock,
        on_failure: Callable[[str, BaseException], None] | None,
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self._kube, self._known, self._time = kube, known, time
        self._manager = service.Manager(
            connect=lambda: channel_client.unix(str(socket)),
            credential=lambda: self.token,
            store=functools.partial(executor_adapter.BlobDirectory, blobs),
            place=str(socket),
        )
        self._background = coroutines.BackgroundWork("task claims", on_failure=on_failure)
        self._served: dict[str, claim_object.Claim] = {}
        self._started = False

    def start(self) -> None:
        """Begin to serve claims, including those known already; call when the dispatcher is
        ready.
        """
        self._started = True
        for seen in self._known.list():
            self._begin(seen)

    async def stop(self) -> None:
        """Stop serving claims; they are left unchanged for the next manager."""
        await self._background.stop()

    def changed(
        self,
        key: objects.Key,
        old: task_claim.TaskClaim | None,
        new: task_claim.TaskClaim | None,
    ) -> None:
        """Handle the creation, change or deletion of a TaskClaim."""
        seen = new or old
        served = None if seen is None else self._served.get(seen.metadata.uid)
        if served is not None:
            served.update(new)
        elif new is not None and self._started:
            self._begin(new)

    def _begin(self, seen: task_claim.TaskClaim) -> None:
        if seen.metadata.deletion_timestamp:
            return
        held = self._served[seen.metadata.uid] = claim_object.Claim(
            seen, self._kube, time=self._time
        )
        self._background.start(seen.metadata.name, self._serve(held))

    async def _serve(self, held: claim_object.Claim) -> None:
        try:
            if held.first.status.phase != task_claim.Phase.FINISHED:
                reason, message = await self._execute(held)
                await held.write_status(
                    {"phase": task_claim.Phase.FINISHED, "reason": reason, "message": message}
                )
            await held.expire()
        finally:
            del self._served[held.uid]

    async def _execute(self, held: claim_object.Claim) -> tuple[str, str]:
        """Present a claim to the dispatcher as an executor until its end; return reason and
        message.
        """
        try:
            running = executor_adapter.ClaimExecutor(held, self._manager, time=self._time)
        except executor_adapter.InvalidClaim as error:
            return reasons.Reason.WORKER_LOST.value, str(error)
        try:
            await running.start(say=_drop_report)
            return await running.finished()
        except channel_errors.ChannelError as error:
            return reasons.Reason.WORKER_LOST.value, str(error)
        finally:
            await running.leave()


def _drop_report(text: str) -> None:
    """Ignore a text for people: it has no reader here."""
