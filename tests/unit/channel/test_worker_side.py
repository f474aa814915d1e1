"""The worker's end of a link, against a scripted dispatcher on a real socket."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kilnwork.api import attempts
from kilnwork.channel import errors, messages, worker_side
from kilnwork.kit import clock, coroutines, ids
from support import scripted_hub, short_paths, waiting

REF = attempts.AttemptRef(ids.new_task_id(), 1, 1)
DONE = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded")


@dataclass
class Owner:
    """Writes down what it receives."""

    running: tuple[messages.Running, ...] = ()
    epochs: list[int] = field(default_factory=list)
    welcomes: list[messages.Welcome] = field(default_factory=list)
    orders: list[worker_side.Order] = field(default_factory=list)
    over: list[attempts.AttemptRef] = field(default_factory=list)
    leases_ended: int = 0

    def hello(self, *, epoch: int) -> messages.Hello:
        self.epochs.append(epoch)
        return messages.Hello(
            version=messages.VERSION,
            role="worker",
            session=b"s" * 16,
            credential="token",
            namespace="default",
            cluster="default",
            worker="w-0",
            pod_uid="uid",
            node="node",
            slots=1,
            epoch=epoch,
            running=self.running,
        )

    def welcomed(self, welcome: messages.Welcome) -> None:
        self.welcomes.append(welcome)

    def received(self, order: worker_side.Order) -> None:
        self.orders.append(order)

    def settled(self, ref: attempts.AttemptRef) -> None:
        self.over.append(ref)

    def lease_ended(self) -> None:
        self.leases_ended += 1


@dataclass
class Ends:
    """Both ends of one link, and who serves ours."""

    hub: scripted_hub.ScriptedHub
    owner: Owner
    peer: worker_side.Peer
    background: coroutines.BackgroundWork

    async def join(self) -> None:
        self.background.start("serve", self.peer.serve())
        await waiting.wait_until_async(lambda: self.owner.welcomes, what="the link stands")

    async def rejoin(self) -> None:
        before = len(self.owner.welcomes)
        self.hub.drop()
        await waiting.wait_until_async(
            lambda: len(self.owner.welcomes) > before, what="the link stands again"
        )


@pytest.fixture
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    directory = short_paths.directory()
    hub = scripted_hub.ScriptedHub(directory / "channel.sock")
    await hub.start()
    owner = Owner()
    ours = worker_side.Peer(
        owner,
        path=str(hub.path),
        clock=clock.SystemClock(),
        entropy=ids.system_entropy(),
        patience_s=getattr(request, "param", 30.0),
    )
    background = coroutines.BackgroundWork("test")
    yield Ends(hub, owner, ours, background)
    await background.stop()
    await hub.stop()
    directory.rmdir()


def finished(serial: int) -> messages.Finished:
    return messages.Finished(serial, REF, DONE)


def started(serial: int) -> messages.Started:
    return messages.Started(serial, REF, 1.0)


async def test_reports_made_before_a_link_follow_the_welcome(ends: Ends) -> None:
    ends.peer.report(started)
    ends.peer.report(finished)
    await ends.join()
    await ends.hub.first(messages.Finished)
    assert [type(m) for m in ends.hub.seen] == [
        messages.Hello,
        messages.Started,
        messages.Finished,
    ]
    assert await ends.peer.acknowledged(timeout_s=30)
    assert ends.owner.over == [REF]


async def test_only_unacknowledged_reports_are_sent_again_in_order(ends: Ends) -> None:
    await ends.join()
    ends.hub.acknowledges = False
    ends.peer.report(started)
    ends.peer.report(finished)
    await ends.hub.first(messages.Finished)
    ends.hub.send(messages.Acknowledged(1))
    ends.peer.send(messages.Log(REF, 0, b"read after the acknowledgement"))
    await waiting.wait_until_async(lambda: ends.hub.log_bytes, what="all was read")
    await asyncio.sleep(0)
    ends.hub.seen.clear()
    await ends.rejoin()
    await ends.hub.first(messages.Finished)
    assert [type(m) for m in ends.hub.seen] == [messages.Hello, messages.Finished]
    assert not await ends.peer.acknowledged(timeout_s=0.01)
    assert ends.owner.over == []


async def test_forgotten_reports_are_not_sent_again(ends: Ends) -> None:
    ends.peer.report(started)
    ends.peer.forget(REF)
    assert await ends.peer.acknowledged(timeout_s=30)
    await ends.join()
    ends.peer.report(finished)
    await ends.hub.first(messages.Finished)
    assert ends.hub.all_of(messages.Started) == []


async def test_orders_received_with_the_welcome_are_carried_out_after_it(ends: Ends) -> None:
    stop = messages.Stop(REF, 1.0, "Killed")
    ends.hub.after_welcome = (stop,)
    await ends.join()
    await waiting.wait_until_async(lambda: ends.owner.orders, what="the order arrived")
    assert ends.owner.orders == [stop]


async def test_dispatcher_with_an_older_epoch_is_left(ends: Ends) -> None:
    ends.hub.epoch = 5
    await ends.join()
    ends.hub.epoch = 4
    ends.hub.drop()
    await waiting.wait_until_async(lambda: len(ends.owner.epochs) >= 3, what="it tries again")
    assert ends.owner.epochs[:3] == [0, 5, 5]
    assert len(ends.owner.welcomes) == 1
    ends.hub.epoch = 6
    await waiting.wait_until_async(
        lambda: len(ends.owner.welcomes) == 2, what="a newer one is taken"
    )


async def test_cancelled_request_is_not_repeated(ends: Ends) -> None:
    await ends.join()

    def ask(serial: int) -> messages.GetTask:
        return messages.GetTask(serial, REF, REF.task, 60.0)

    asking = ends.background.start("ask", ends.peer.request(ask))
    await ends.hub.first(messages.GetTask)
    asking.cancel()
    await asyncio.wait({asking})
    ends.hub.seen.clear()
    await ends.rejoin()
    ends.peer.report(finished)
    await ends.hub.first(messages.Finished)
    assert ends.hub.all_of(messages.GetTask) == []


async def test_request_larger_than_a_frame_is_refused_at_once(ends: Ends) -> None:
    def huge(serial: int) -> messages.GetTask:
        return messages.GetTask(serial, REF, ids.TaskId(b"x" * messages.MAX_FRAME_BYTES), 0.0)

    with pytest.raises(errors.FrameTooLarge):
        await ends.peer.request(huge)


@pytest.mark.parametrize("ends", [0.2], indirect=True)
async def test_peer_ends_when_there_is_no_dispatcher(ends: Ends) -> None:
    await ends.hub.stop()
    with pytest.raises(errors.LinkClosed, match="no dispatcher"):
        await ends.peer.serve()


async def test_final_refusal_ends_the_peer(ends: Ends) -> None:
    ends.hub.greeting = messages.Refused("BadToken", "who are you", retry=False)
    with pytest.raises(errors.LinkRefused, match="who are you"):
        await ends.peer.serve()


async def test_final_refusal_ends_an_open_link(ends: Ends) -> None:
    serving = asyncio.ensure_future(ends.peer.serve())
    await waiting.wait_until_async(lambda: ends.owner.welcomes, what="the link stands")
    ends.hub.send(messages.Refused("replaced", "a newer session", retry=False))
    with pytest.raises(errors.LinkRefused, match="a newer session"):
        await asyncio.wait_for(serving, 30)


async def test_last_message_is_read_after_a_failed_write(ends: Ends) -> None:
    serving = asyncio.create_task(ends.peer.serve())
    await waiting.wait_until_async(lambda: ends.owner.welcomes, what="the link stands")
    ends.hub.send(messages.Refused(messages.LEAVING, "the dispatcher ends", retry=False))
    ends.hub.shut()
    ends.peer.send(messages.Log(REF, 0, b"written before anything was read"))
    with pytest.raises(errors.LinkRefused, match="the dispatcher ends"):
        await asyncio.wait_for(serving, 10)


async def test_without_renewal_lease_and_link_end_once(ends: Ends) -> None:
    ends.hub.lease_s, ends.hub.renew_s, ends.hub.renews = 1.5, 0.3, False
    await ends.join()
    assert ends.peer.lease_holds
    await waiting.wait_until_async(lambda: len(ends.owner.welcomes) == 2, what="it connects again")
    assert ends.owner.leases_ended == 1


async def test_renewed_lease_holds(ends: Ends) -> None:
    ends.hub.lease_s, ends.hub.renew_s = 2.0, 0.1
    await ends.join()
    await waiting.wait_until_async(
        lambda: len(ends.hub.all_of(messages.Renew)) > 21, what="renewals"
    )
    assert ends.owner.leases_ended == 0
    assert ends.peer.lease_holds


@pytest.mark.parametrize("ends", [0.2], indirect=True)
async def test_peer_waits_beyond_its_patience_while_the_lease_holds(ends: Ends) -> None:
    ends.hub.lease_s, ends.hub.renew_s = 60.0, 20.0
    await ends.join()
    await ends.hub.stop()
    gone = asyncio.get_running_loop().time()
    await waiting.wait_until_async(
        lambda: asyncio.get_running_loop().time() > gone + 1.5, what="its patience is long over"
    )
    await ends.hub.start()
    await waiting.wait_until_async(lambda: len(ends.owner.welcomes) == 2, what="it is back")
    assert ends.owner.leases_ended == 0


async def test_connection_made_after_cancellation_is_closed() -> None:
    """The caller is gone by then; the thread cannot be."""
    gate = threading.Event()
    ours, theirs = socket.socketpair()

    def connect() -> socket.socket:
        gate.wait(30)
        return ours

    late = worker_side.Peer(
        Owner(), path=connect, clock=clock.SystemClock(), entropy=ids.system_entropy()
    )
    background = coroutines.BackgroundWork("test")
    background.start("link", late.serve())
    await asyncio.sleep(0.05)
    await background.stop()
    gate.set()
    await waiting.wait_until_async(lambda: ours.fileno() < 0, what="it is closed")
    theirs.close()


async def test_store_waits_until_the_report_is_stored(ends: Ends) -> None:
    await ends.join()
    ends.hub.acknowledges = False
    background = coroutines.BackgroundWork("waiter")
    storing = background.start("store", ends.peer.store(started))
    await ends.hub.first(messages.Started)
    await asyncio.sleep(0.05)
    assert not storing.done()
    ends.hub.acknowledges = True
    await ends.rejoin()  # it is sent again
    await asyncio.wait_for(storing, 30)
    await background.stop()
