"""Leader election: a Lease has one holder at a time, and each term of a holder has its own epoch.

Used by `kiln manager`, which acts only while its term lasts. The rules are those of client-go's
leaderelection, with which it may compete for the same Lease, and one more: every term increases
`leaseTransitions`, which is its epoch. Clocks of two machines are never compared: a candidate waits
a whole lease after it has *seen* a renewal, and the holder counts from before it *sent* one, so a
holder that cannot renew has stopped `lease_s - renew_s` before any other candidate may begin. If a
holder's process is paused before a write, this rule does not help, but epochs do: check the epoch
where you write.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from kilnwork.api import api_resources as resources
from kilnwork.api import meta
from kilnwork.kit import clock, coroutines, ids
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

T = TypeVar("T")


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease, the identity and the timing of a candidate; the default times are client-go's."""

    namespace: str
    name: str
    identity: str
    """Unique to this process; see `identity()`."""
    lease_s: int = 15
    """Seconds that other candidates wait after the last renewal that they saw."""
    renew_s: float = 10.0
    """Seconds after a renewal for which the holder acts; the rest of the lease is a margin for
    clocks that run unevenly.
    """
    retry_s: float = 2.0
    """Seconds between two reads or renewals."""
    floor: int = 0
    """The highest epoch that was ever stored; new epochs are above it. Without it, epochs would
    start from 0 again after the Lease was deleted.
    """
    annotations: Mapping[str, str] = {}
    """Annotations of the Lease, from the first term on."""
    objection: Callable[[meta.JsonObject | None], str] = lambda _: ""
    """Called with the Lease, or with None if there is no Lease. Returns the reason why this
    candidate must not take it, even if no other candidate holds it; "" if it may take it.
    """

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_s < self.lease_s:
            raise ValueError(
                f"an election needs retry_s < renew_s < lease_s, not {self.retry_s:g}, "
                f"{self.renew_s:g}, {self.lease_s}"
            )


def identity(host: str, *, new_uid: ids.NewUid = ids.new_uid) -> str:
    """Return `HOST_UUID`, an identity in the form of client-go.

    It shows the host, and is unique to this process.
    """
    return f"{host}_{new_uid()}"


class Record(msgspec.Struct, frozen=True):
    """The record in a Lease; empty if the Lease does not exist.

    `renewed` is compared with earlier values, but never parsed.
    """

    holder: str = ""
    lease_s: int = 0
    transitions: int = 0
    renewed: str = ""


def read(lease: meta.JsonObject) -> Record:
    """Return the record in a Lease object; fields that are missing there are empty."""
    spec = lease.get("spec") or {}
    return Record(
        spec.get("holderIdentity") or "",
        spec.get("leaseDurationSeconds") or 0,
        spec.get("leaseTransitions") or 0,
        spec.get("renewTime") or "",
    )


class View:
    """The last record that a candidate has seen in a Lease, and when it saw the last change.

    It decides how long the candidate must wait before it may take the Lease.
    """

    def __init__(self, me: str, *, floor: int = 0) -> None:
        self.record = Record()
        self._me = me
        self._since_s = 0.0
        self._highest = floor

    def see(self, record: Record, *, now_s: float) -> None:
        """Store the record of a Lease that was read at `now_s` (monotonic)."""
        # Any change is a sign of life. Times in the record are those of other clocks.
        if record != self.record:
            self._since_s = now_s
        self.record = record
        self._highest = max(self._highest, record.transitions)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the Lease may be taken if it does not change; 0: at once."""
        if self.record.holder in ("", self._me):
            return 0.0
        return max(0.0, self._since_s + self.record.lease_s - now_s)

    def next_epoch(self) -> int:
        """Return an epoch above every epoch that was seen, including those of deleted Leases."""
        return self._highest + 1


class Term:
    """A period in which this process holds the Lease, under `epoch`.

    Call `holds()` right before acting: it checks the clock, and so is right even in a process that
    was paused for a while and has not noticed that yet. `lost()` waits for the end.
    """

    def __init__(self, epoch: int, until_s: float, time: clock.Clock) -> None:
        self.epoch = epoch
        self._until_s = until_s
        self._clock = time
        self._over = asyncio.Event()
        self._why = ""

    def holds(self) -> bool:
        """Return True while no other candidate can hold the Lease."""
        return not self._over.is_set() and self.left_s() > 0

    def left_s(self) -> float:
        """Return the seconds until the term ends if it is not renewed."""
        return self._until_s - self._clock.monotonic()

    async def lost(self) -> str:
        """Wait for the end of the term and return the reason as text."""
        await self._over.wait()
        return self._why

    def renewed(self, until_s: float) -> None:
        """Extend the term until `until_s` (monotonic). Called by the elector only."""
        self._until_s = until_s

    def end(self, why: str) -> None:
        """End the term, even if its time has not expired. Called by the elector only."""
        if not self._over.is_set():
            self._why = why
            self._over.set()


class Elector:
    """A candidate for a Lease: `acquire` waits for a term and keeps renewing it; `stop` ends it.

    Pass it a client that nothing else uses: a renewal must not queue behind other requests. Texts
    for people: `holder` is the present holder, `problem` why the Lease cannot be requested,
    `objection` why this candidate does not request it. `on_objection` is called with each new
    objection.
    """

    def __init__(
        self, kube: client.Client, settings: ElectionSettings, *, time: clock.Clock | None = None
    ) -> None:
        self.problem = ""
        self.objection = ""
        self.on_objection: Callable[[str], None] = lambda _: None
        self._client = kube
        self._settings = settings
        self._clock = time or clock.SystemClock()
        self._entropy = ids.system_entropy()
        self._view = View(settings.identity, floor=settings.floor)
        self._lease: meta.JsonObject | None = None
        self._term: Term | None = None
        self._responded = False
        self._patience_s = settings.renew_s / 2  # leaves time for a second try, as client-go does
        self._background = coroutines.BackgroundWork(
            f"election {settings.name}", on_failure=self._broken
        )

    @property
    def holder(self) -> str:
        """The identity of the last seen holder of the Lease; empty if it had no holder."""
        return self._view.record.holder

    async def acquire(self) -> Term:
        """Wait until this candidate holds the Lease; return the term, which is renewed in the
        background.

        Raises the API server's error if its first response is that this is not allowed, or that the
        namespace does not exist. After later responses of this kind, the candidate waits and
        reports them as `problem`.
        """
        if self._term is not None and self._term.holds():
            return self._term
        # The coroutine of an earlier term may still run.
        await self._background.stop()
        while True:
            term = await self._try_once()
            if term is not None:
                self._term = term
                self._background.start("renew", self._renew(term))
                return term
            await asyncio.sleep(self._pause_s())

    async def stop(self) -> None:
        """End the term and release the Lease, so that the next candidate need not wait."""
        await self._background.stop()
        term, self._term = self._term, None
        if term is None:
            return
        # After the term another candidate may hold the Lease.
        held = term.holds()
        term.end("it was released")
        if held:
            await self._release(term)

    async def _try_once(self) -> Term | None:
        """Read the Lease, and take it if that is allowed; return the term, otherwise None."""
        try:
            await self._in_time(self._look(), self._patience_s)
            if self._has_objection() or self._view.wait_s(self._clock.monotonic()) > 0:
                return None
            return await self._take()
        except (errors.Conflict, errors.AlreadyExists) as error:
            log.debug("another candidate was faster", extra=self._facts(error=str(error)))
        except TimeoutError:
            self._trouble("the API server does not respond")
        except kit_errors.KilnError as error:
            temporary = isinstance(error, errors.ApiError) and error.retry
            if not (temporary or self._responded):
                raise
            self._trouble(str(error))
        return None

    async def _look(self) -> None:
        place = self._settings
        try:
            self._lease = await self._client.get(resources.LEASES, place.name, place.namespace)
        except errors.NotFound:
            self._lease = None
        else:
            self._responded = True
        record = Record() if self._lease is None else read(self._lease)
        # Read the clock after the response: a time that is too late is safe, since this candidate
        # only waits longer.
        self._view.see(record, now_s=self._clock.monotonic())
        self.problem = ""

    def _has_objection(self) -> bool:
        """Return whether `objection` keeps this candidate from taking the Lease; log a new
        objection.
        """
        objection = self._settings.objection(self._lease)
        if objection and objection != self.objection:
            log.warning("does not lead", extra=self._facts(why=objection))
            self.on_objection(objection)
        self.objection = objection
        return bool(objection)

    async def _take(self) -> Term:
        epoch = self._view.next_epoch()
        # Read the clock before the request: the term must not outlast the lease that others see,
        # however late the response arrives.
        sent = self._clock.monotonic()
        await self._in_time(self._write(self._claim(epoch)), self._patience_s)
        log.info("term begins", extra=self._facts(epoch=epoch))
        return Term(epoch, sent + self._settings.renew_s, self._clock)

    async def _renew(self, term: Term) -> None:
        """Renew the term until renewing fails for too long, or another candidate has the Lease."""
        while term.holds():
            await asyncio.sleep(min(self._settings.retry_s, max(0.0, term.left_s())))
            # This process may have been paused for longer than it wanted to sleep.
            if not term.holds():
                break
            try:
                # At most until the end of the term, which must be reported in time.
                await self._in_time(self._renew_once(term), min(term.left_s(), self._patience_s))
            except TimeoutError:
                self._trouble("the API server does not respond")
            except kit_errors.KilnError as error:
                self._trouble(str(error))
            if self._lease is not None and self._overtaken(term):
                break
        self._ended(term)

    async def _renew_once(self, term: Term) -> None:
        sent = self._clock.monotonic()
        try:
            await self._write({"renewTime": self._now()})
        except (errors.NotFound, errors.Conflict, errors.AlreadyExists):
            # Another client has written the Lease, such as its annotations: renew at once if it is
            # still ours.
            await self._look()
            if self._lease is not None and self._overtaken(term):
                return
            # The term counts from before this write: the write that failed has renewed nothing.
            sent = self._clock.monotonic()
            # As in client-go, the candidate that creates the Lease first holds it.
            deleted = self._lease is None
            await self._write(self._claim(term.epoch) if deleted else {"renewTime": self._now()})
        term.renewed(sent + self._settings.renew_s)
        self.problem = ""

    def _overtaken(self, term: Term) -> bool:
        record = self._view.record
        return record.holder != self._settings.identity or record.transitions != term.epoch

    def _ended(self, term: Term) -> None:
        record = self._view.record
        if self._lease is None:
            why = f"the Lease was deleted and could not be made again: {self.problem}"
        elif self._overtaken(term):
            why = f"{record.holder or 'no candidate'} holds the Lease now"
        else:
            why = f"it could not be renewed in time: {self.problem or 'this process stood still'}"
        log.warning("term is over", extra=self._facts(epoch=term.epoch, why=why))
        term.end(why)

    def _claim(self, epoch: int) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.lease_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

    async def _write(self, changes: dict[str, Any]) -> None:
        """Create the Lease, or write changes to the Lease that was last seen.

        Raises Conflict if it has changed since.
        """
        place = self._settings
        if self._lease is None:
            metadata = {
                "name": place.name,
                "namespace": place.namespace,
                "annotations": dict(place.annotations),
            }
            made = {
                "apiVersion": resources.LEASES.api_version,
                "kind": resources.LEASES.kind,
                "metadata": metadata,
                "spec": changes,
            }
            stored = await self._client.create(resources.LEASES, made, place.namespace)
        else:
            spec = {**(self._lease.get("spec") or {}), **changes}
            # Contains the resourceVersion that was seen, so that the server refuses an outdated
            # change.
            changed = {**self._lease, "spec": spec}
            if "holderIdentity" in changes and place.annotations:
                metadata = self._lease["metadata"]
                given = {**(metadata.get("annotations") or {}), **place.annotations}
                changed["metadata"] = {**metadata, "annotations": given}
            stored = await self._client.replace(resources.LEASES, changed, place.namespace)
        self._lease = stored
        self._view.see(read(stored), now_s=self._clock.monotonic())
        self._responded = True

    async def _release(self, term: Term) -> None:
        """Release the Lease as client-go does: without a holder and with a lease duration of one
        second.
        """
        with contextlib.suppress(errors.KubeError, TimeoutError):
            await self._in_time(self._clear_holder(term), self._patience_s)

    async def _clear_holder(self, term: Term) -> None:
        released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            await self._write(released)
        except errors.Conflict:
            # A renewal that timed out may have been stored, and then the last seen version is
            # outdated.
            await self._look()
            if not self._overtaken(term):
                await self._write(released)

    async def _in_time(self, work: Awaitable[T], timeout_s: float) -> T:
        async with asyncio.timeout(max(0.0, timeout_s)):
            return await work

    def _pause_s(self) -> float:
        """Return the seconds until the next read of the Lease: the retry period with jitter, or
        less if the lease of another holder would end before that.
        """
        pause_s = self._settings.retry_s * (1 + 0.2 * self._entropy.random())
        wait_s = self._view.wait_s(self._clock.monotonic())
        return min(pause_s, wait_s) if wait_s > 0 else pause_s

    def _now(self) -> str:
        return clock.rfc3339_micro(self._clock.wall())

    def _trouble(self, problem: str) -> None:
        self.problem = problem
        log.warning("cannot reach the Lease", extra=self._facts(error=problem))

    def _broken(self, _: str, error: BaseException) -> None:
        if self._term is not None:
            self._term.end(f"renewing it failed: {error}")

    def _facts(self, **more: object) -> dict[str, object]:
        lease = f"{self._settings.namespace}/{self._settings.name}"
        return {"lease": lease, "identity": self._settings.identity, **more}
