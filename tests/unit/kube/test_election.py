"""One holder at a time: what a candidate may conclude, and what a Lease on a bad server does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp.web
import pytest

from kilnwork.kit import clock
from kilnwork.kube import client, election, errors
from support import scripted_apiserver, waiting

ME = "me_1"
OTHER = "other_2"


def _record(holder: str, *, renewed: str = "t0", transitions: int = 3) -> election.Record:
    return election.Record(holder, 15, transitions, renewed)


def test_a_free_lease_may_be_taken_at_once() -> None:
    view = election.View(ME, floor=7)
    assert (view.wait_s(0), view.next_epoch()) == (0, 8)
    view.see(_record("", transitions=9), now_s=5)
    assert (view.wait_s(5), view.next_epoch()) == (0, 10)


def test_silent_holder_keeps_the_lease_for_its_duration() -> None:
    view = election.View(ME)
    view.see(_record(OTHER), now_s=100)
    assert view.wait_s(100) == 15
    view.see(_record(OTHER), now_s=110)
    assert view.wait_s(110) == 5
    assert view.wait_s(116) == 0


def test_each_renewal_begins_a_lease() -> None:
    view = election.View(ME)
    view.see(_record(OTHER), now_s=100)
    view.see(_record(OTHER, renewed="t1"), now_s=114)
    assert view.wait_s(114) == 15


def test_epochs_rise_though_the_lease_is_deleted() -> None:
    view = election.View(ME)
    view.see(_record(OTHER, transitions=41), now_s=1)
    view.see(election.Record(), now_s=2)
    assert (view.wait_s(2), view.next_epoch()) == (0, 42)


async def test_a_term_ends_by_the_clock_alone() -> None:
    time = clock.ManualClock()
    term = election.Term(1, time.monotonic() + 10, time)
    assert term.holds()
    time.advance(10)
    assert not term.holds()


@pytest.mark.parametrize(("retry_s", "renew_s", "lease_s"), [(2, 15, 15), (10, 10, 15), (0, 1, 2)])
def test_times_that_cannot_work_are_refused(retry_s: float, renew_s: float, lease_s: int) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < lease_s"):
        election.ElectionSettings(
            namespace="n", name="l", identity=ME, lease_s=lease_s, renew_s=renew_s, retry_s=retry_s
        )


class Leases:
    """One Lease on a scripted server, with conflicts as a real one has them."""

    def __init__(self, stand: scripted_apiserver.ScriptedApiServer) -> None:
        self.lease: dict[str, Any] | None = None
        self.refuse = 0
        self.hang = False
        self.reads = 0
        self.mute = asyncio.Event()
        """Once it is set, a write is stored and gets no response; `unanswered`: one was."""
        self.unanswered = asyncio.Event()
        self._version = 0
        stand.handler = self._serve

    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        found: dict[str, Any] = self.lease["spec"]
        return found

    def annotations(self) -> dict[str, str]:
        assert self.lease is not None
        found: dict[str, str] = self.lease["metadata"]["annotations"]
        return found

    def annotate(self, **annotations: str) -> None:
        self.write()
        assert self.lease is not None
        self.lease["metadata"]["annotations"] = annotations

    def write(self, **spec: Any) -> None:
        self._version += 1
        before = self.lease or {"metadata": {}, "spec": {}}
        metadata = {"name": "l", "namespace": "n", "resourceVersion": str(self._version)}
        metadata = {**before["metadata"], **metadata}
        self.lease = {"metadata": metadata, "spec": {**before["spec"], **spec}}

    async def _serve(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        if self.hang:
            await asyncio.sleep(60)
        if self.refuse:
            return aiohttp.web.json_response({"message": "no"}, status=self.refuse)
        if request.method == "GET":
            self.reads += 1
            if self.lease is None:
                return aiohttp.web.json_response({"reason": "NotFound"}, status=404)
            return aiohttp.web.json_response(self.lease)
        sent = await request.json()
        if request.method == "PUT":
            if self.lease is None:
                return aiohttp.web.json_response({"reason": "NotFound"}, status=404)
            if sent["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return aiohttp.web.json_response({"reason": "Conflict"}, status=409)
        elif self.lease is not None:
            return aiohttp.web.json_response({"reason": "AlreadyExists"}, status=409)
        self.write(**sent["spec"])
        assert self.lease is not None
        if "annotations" in sent["metadata"]:
            self.lease["metadata"]["annotations"] = sent["metadata"]["annotations"]
        if self.mute.is_set():
            self.mute.clear()
            self.unanswered.set()
            await asyncio.sleep(60)
        return aiohttp.web.json_response(self.lease)


@pytest.fixture
def leases(stand: scripted_apiserver.ScriptedApiServer) -> Leases:
    return Leases(stand)


@contextlib.asynccontextmanager
async def _candidate(
    kube: client.Client, identity: str = ME, **more: Any
) -> AsyncIterator[election.Elector]:
    times = {"lease_s": 15, "renew_s": 10.0, "retry_s": 0.05}
    settings = election.ElectionSettings(
        namespace="n", name="l", identity=identity, **{**times, **more}
    )
    elector = election.Elector(kube, settings)
    try:
        yield elector
    finally:
        await elector.stop()


async def test_a_missing_lease_is_made_and_kept(kube: client.Client, leases: Leases) -> None:
    async with _candidate(kube, floor=4) as elector:
        term = await elector.acquire()
        first = leases.spec()
        assert (first["holderIdentity"], first["leaseDurationSeconds"]) == (ME, 15)
        assert (term.epoch, first["leaseTransitions"]) == (5, 5)
        await waiting.wait_until_async(
            lambda: leases.spec()["renewTime"] > first["renewTime"], what="a renewal"
        )
        assert leases.spec()["acquireTime"] == first["acquireTime"]
        assert term.holds()
        assert elector.holder == ME
    assert not term.holds()
    assert (leases.spec()["holderIdentity"], leases.spec()["leaseTransitions"]) == ("", 5)
    assert await term.lost() == "it was released"


async def test_next_candidate_takes_a_released_lease(kube: client.Client, leases: Leases) -> None:
    async with _candidate(kube, OTHER) as second:
        async with _candidate(kube) as first:
            one = await first.acquire()
            waits = asyncio.create_task(second.acquire())
            await waiting.wait_until_async(lambda: second.holder == ME, what="the other to look")
            assert not waits.done()
        two = await asyncio.wait_for(waits, 10)  # the lease would last 15
        assert (two.epoch, one.holds(), two.holds()) == (one.epoch + 1, False, True)


async def test_lease_is_released_during_a_renewal(kube: client.Client, leases: Leases) -> None:
    """The server has it, and its sender has not heard: the last seen Lease is outdated."""
    async with _candidate(kube) as elector:
        await elector.acquire()
        leases.mute.set()
        await asyncio.wait_for(leases.unanswered.wait(), 30)
        await elector.stop()
        assert leases.spec()["holderIdentity"] == ""


async def test_a_lease_that_another_holds_is_not_released(
    kube: client.Client, leases: Leases
) -> None:
    async with _candidate(kube, retry_s=5.0) as elector:
        await elector.acquire()
        leases.write(holderIdentity=OTHER, leaseTransitions=7)
        await elector.stop()
        assert leases.spec()["holderIdentity"] == OTHER


async def test_a_holder_that_is_overtaken_says_so(kube: client.Client, leases: Leases) -> None:
    async with _candidate(kube) as elector:
        term = await elector.acquire()
        leases.write(holderIdentity=OTHER, leaseTransitions=term.epoch + 1)
        why = await asyncio.wait_for(term.lost(), 30)
        assert why == f"{OTHER} holds the Lease now"
        assert not term.holds()
    assert leases.spec()["holderIdentity"] == OTHER  # not released in its name


async def test_fields_of_other_writers_on_the_lease_are_kept(
    kube: client.Client, leases: Leases
) -> None:
    async with _candidate(kube) as elector:
        term = await elector.acquire()
        leases.write(strategy="OldestEmulationVersion")
        before = leases.spec()["renewTime"]
        await waiting.wait_until_async(
            lambda: leases.spec()["renewTime"] > before, what="a renewal after the change"
        )
        assert term.holds()
        assert leases.spec()["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize("fault", ["refuse", "hang"])
async def test_term_ends_before_the_lease_expires(
    kube: client.Client, leases: Leases, fault: str
) -> None:
    async with _candidate(kube, lease_s=5, renew_s=0.5) as elector:
        term = await elector.acquire()
        began = asyncio.get_running_loop().time()
        if fault == "refuse":
            leases.refuse = 503
        else:
            leases.hang = True
        why = await asyncio.wait_for(term.lost(), 30)
        assert why.startswith("it could not be renewed in time: ")
        assert asyncio.get_running_loop().time() - began < 5  # the lease
        assert not term.holds()
        leases.refuse, leases.hang = 0, False
        again = await asyncio.wait_for(elector.acquire(), 30)
        assert again.epoch == term.epoch + 1


async def test_a_deleted_lease_is_made_again_by_its_holder(
    kube: client.Client, leases: Leases
) -> None:
    async with _candidate(kube, annotations={"about": "this"}) as elector:
        term = await elector.acquire()
        leases.lease = None
        await waiting.wait_until_async(lambda: leases.lease is not None, what="it is there again")
        assert leases.spec()["leaseTransitions"] == term.epoch
        assert leases.annotations() == {"about": "this"}
        assert term.holds()


async def test_a_deleted_lease_that_another_has_made_ends_the_term(
    kube: client.Client, leases: Leases
) -> None:
    async with _candidate(kube) as elector:
        term = await elector.acquire()
        leases.lease = None
        leases.write(holderIdentity=OTHER, leaseTransitions=1)
        why = await asyncio.wait_for(term.lost(), 30)
        assert why == f"{OTHER} holds the Lease now"


async def test_a_candidate_that_objects_leaves_a_free_lease_alone(
    kube: client.Client, leases: Leases
) -> None:
    leases.write(holderIdentity="")
    leases.annotate(about="that")

    def objection(lease: dict[str, Any] | None) -> str:
        found = (lease or {}).get("metadata", {}).get("annotations", {})
        return "" if found.get("about") == "this" else f"it is about {found.get('about')}"

    events: list[str] = []
    async with _candidate(kube, annotations={"about": "this"}, objection=objection) as elector:
        elector.on_objection = events.append
        waits = asyncio.create_task(elector.acquire())
        await waiting.wait_until_async(lambda: elector.objection, what="it objects")
        reads = leases.reads
        await waiting.wait_until_async(lambda: leases.reads > reads + 2, what="it looks again")
        assert (events, waits.done()) == (["it is about that"], False)
        leases.annotate(about="this")
        term = await asyncio.wait_for(waits, 30)
        assert (term.holds(), elector.objection) == (True, "")


async def test_a_first_refusal_is_raised_and_later_ones_are_waited_out(
    kube: client.Client, leases: Leases
) -> None:
    leases.refuse = 403
    async with _candidate(kube) as elector:
        with pytest.raises(errors.Forbidden):
            await elector.acquire()
        leases.refuse = 0
        leases.write(holderIdentity=OTHER, leaseDurationSeconds=1)
        waits = asyncio.create_task(elector.acquire())
        await waiting.wait_until_async(lambda: elector.holder == OTHER, what="a look")
        leases.refuse = 403
        await waiting.wait_until_async(lambda: elector.problem == "no", what="a problem")
        leases.refuse = 0
        assert (await asyncio.wait_for(waits, 30)).holds()
