"""Keeps machine and store in step: nothing is released before it is stored.

Used by the hub. Inputs go to the machine at once. Their results are gathered until the store is
free, written as one batch, and released when that is stored (on disk, if the store is a journal):
frames to links, changes to feeds, responses to waiting requests. Frames are encoded while the batch
is written. Knows no sockets and no callers.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import delivery
from kilnwork.dispatch.journal import port, restore
from kilnwork.dispatch.machine import inputs, instructions, machine, memory
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.25
STALL_S = 1.0
"""Seconds of delay of the hub's own heartbeat above which all leases get a full term, since no
worker could reach the hub.
"""

MAX_UNWRITTEN_TASKS = 20_000
"""Maximum number of tasks that wait to be written; with more, links are not read until the next
commit.
"""


class Observer(Protocol):
    """A part that is notified of stored batches; implemented by the hub."""

    def committed(self, batch: instructions.Batch, written: port.Written) -> None:
        """Handle a batch that is stored and whose frames are sent.

        `written`: the rows of followed tasks in the batch.
        """
        ...

    def failed(self, error: BaseException) -> None:
        """Handle the final failure of the store or the machine: end every wait with
        `HubStopped`.
        """
        ...


class Participant(Protocol):
    """A part that keeps tables of its own in the store, in step with tasks; implemented by
    `jobs`.
    """

    def join(self, batch: instructions.Batch) -> bool:
        """Add `writes` to a batch before it is written; inputs applied meanwhile also join the
        batch.

        Only one batch is in progress at a time. Returns True if `committed` must be called even if
        the batch is empty.
        """
        ...

    def committed(self) -> None:
        """Handle the commit of a batch: the rows that were added to it are stored."""
        ...

    def aborted(self, error: BaseException) -> None:
        """Handle the error after which no batch will be written any more."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits and capabilities with which the machine is created."""

    lease_s: float
    """Seconds that a worker may be silent."""
    max_backlog: int
    """Number of queued tasks of one cluster above which calls are not acknowledged, so that
    submitters wait.
    """
    executors: bool = True
    """Whether tasks may name executors other than the worker."""
    images: model.ImageRule = model.label_image
    """Says what the image of a spawned task means."""


class Core:
    """The machine, the store, and the loop that writes the machine's batches to the store."""

    def __init__(
        self,
        store: port.Store,
        frames: delivery.Delivery,
        observer: Observer,
        *,
        clock: clocks.Clock,
        entropy: ids.Entropy,
        limits: BatchLimits,
    ) -> None:
        self.store = store
        self.clock = clock
        self._entropy = entropy
        self.limits = limits
        self._delivery = frames
        self._observer = observer
        self.participants: list[Participant] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._unflushed: set[asyncio.Future[None]] = set()
        self._writing = False
        self._scheduled = False
        self._wanted = False
        """Whether something has arrived while a batch was being written."""
        self._stopped: errors.HubStopped | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_heartbeat = 0.0

    def start(self) -> None:
        """Open the store and restore all unfinished tasks."""
        self._loop = asyncio.get_running_loop()
        opened = self.store.open(lease_s=self.limits.lease_s)
        self.reader = self.store.reader
        self._first_row = opened.next_task_row
        self._restore(opened)
        # After the restore, which reads rows and needs the store to write nothing.
        self.store.start(self._loop.call_soon_threadsafe, on_failure=self._fail)
        self._last_heartbeat = self.clock.monotonic()
        self._heartbeat_timer = self._loop.call_later(HEARTBEAT_S, self._heartbeat)
        # A restore may have ended tasks, whose rows must be written even without an input.
        self.schedule()

    def _restore(self, opened: port.Opened) -> None:
        mem = memory.Memory(
            lease_s=self.limits.lease_s,
            entropy=self._entropy,
            task_row=opened.next_task_row,
            worker_row=opened.next_worker_row,
            template_row=opened.next_template_row,
            max_backlog=self.limits.max_backlog,
        )
        mem.longest_lease_s = max(mem.lease_s, opened.longest_lease_s)
        if opened.saved is not None:
            restore.restore(mem, opened.saved, self.reader.values, self.now())
            restore.expect_workers(mem, self.now())
        self.machine = machine.Machine(mem)

    def close(self) -> None:
        """Accept no more inputs, finish the current commit, and close the store."""
        self._stop(errors.HubStopped())
        self.store.close()

    def now(self) -> inputs.Moment:
        """Return the current time by both clocks."""
        return inputs.Moment(self.clock.wall(), self.clock.monotonic())

    def apply(self, item: inputs.Input) -> None:
        """Give an input to the machine; its results are written and released soon."""
        # Checked for each input: after a stop, nothing may change that could never be written.
        self.check()
        self.machine.handle(item, self.now())
        self.schedule()

    def check(self) -> None:
        """Raise `HubStopped` if this dispatcher accepts no more inputs."""
        if self._stopped is not None:
            raise self._stopped

    @property
    def overloaded(self) -> bool:
        """Return whether so much waits to be written that links should not be read."""
        return self._writing and len(self.machine.memory.batch.dirty) > MAX_UNWRITTEN_TASKS

    def is_new(self, task: ids.TaskId) -> bool:
        """Return whether the task's first run is in memory and was submitted since the start."""
        known = self.machine.task(task)
        # Rows are numbered in order of submission, and those of this process begin here.
        return known is not None and known.run == 1 and known.row >= self._first_row

    async def flush(self) -> None:
        """Wait until all inputs applied so far are stored and their results released."""
        self.check()
        waiter = self._loop.create_future()
        # Its batch is the one that `_advance` takes next, which has all inputs applied so far.
        self._waiting.append(waiter)
        self._unflushed.add(waiter)
        waiter.add_done_callback(self._unflushed.discard)
        self.schedule()
        await waiter

    def schedule(self) -> None:
        """Have a batch written and released soon, if there is something to write or release."""
        # One batch at a time; inputs that arrive meanwhile are collected, so a slow disk makes
        # large batches.
        if self._writing:
            self._wanted = True
        elif not self._scheduled and self._stopped is None:
            self._scheduled = True
            # Not at once: inputs that arrive in this turn of the loop go into the same batch.
            self._loop.call_soon(self._advance)

    def tick(self) -> None:
        """Apply a `Tick` if a deadline of the machine has passed, and a `Stalled` after a
        suspension.

        The dispatcher fails if the machine does.
        """
        if self._stopped is not None:
            return
        try:
            self._apply_time(self.clock.monotonic())
        # The deadline is no longer in memory, and perhaps half handled: the hub would wait for a
        # worker or task without end.
        except Exception as error:  # noqa: BLE001 - only a restart mends that
            self._fail(error)

    def _apply_time(self, mono: float) -> None:
        if mono - self._last_heartbeat > HEARTBEAT_S + STALL_S:
            log.warning(
                "dispatcher was away", extra={"seconds": round(mono - self._last_heartbeat, 3)}
            )
            # Before the Tick below, whose timers would otherwise lose workers that could not renew.
            self.machine.handle(inputs.Stalled(), self.now())
        # Set by any tick, not the heartbeat alone: the loop runs, so peers were heard.
        self._last_heartbeat = mono
        due = self.machine.next_deadline()
        if due is not None and due <= mono:
            self.machine.handle(inputs.Tick(), self.now())
            self.schedule()

    def _advance(self) -> None:
        self._scheduled = False
        if self._writing or self._stopped is not None:
            return
        try:
            joined = False
            for participant in self.participants:
                joined = participant.join(self.machine.memory.batch) or joined
            # After the participants, whose inputs belong to this batch.
            batch = self.machine.take(self.now())
            # Taken together with the batch: a waiter of a later input belongs to the next one.
            waiting, self._waiting = self._waiting, []
            self._set_timer()
            if batch.durable:
                self._write(batch, waiting)
            # Nothing to write, and nothing in progress either, so its messages overtake no rows.
            elif waiting or joined or not batch.empty:
                self._settle(batch, self._delivery.prepare(batch), waiting, written=())
        except Exception as error:  # noqa: BLE001 - half a batch is done: only a restart mends that
            self._fail(error)

    def _write(self, batch: instructions.Batch, waiting: list[asyncio.Future[None]]) -> None:
        """Hand a batch to the store, then encode its frames while the batch is written."""
        prepared: list[delivery.Outgoing] = []

        def committed(written: port.Written) -> None:
            self._writing = False
            # Stored but not sent: peers learn of it from the next dispatcher.
            if self._stopped is not None:
                return
            try:
                ready = prepared[0] if prepared else self._delivery.prepare(batch)
                self._settle(batch, ready, waiting, written=written)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)
            # Tasks that have ended may make room for tasks that wait.
            if self._wanted or batch.dirty:
                self.schedule()

        # Before `write`: a store in memory calls `committed` from within.
        self._writing, self._wanted = True, False
        self.store.write(batch, committed)
        if self._writing:
            # Not for a store in memory, which has called `committed` already.
            prepared.append(self._delivery.prepare(batch))

    def _settle(
        self,
        batch: instructions.Batch,
        prepared: delivery.Outgoing,
        waiting: list[asyncio.Future[None]],
        *,
        written: port.Written,
    ) -> None:
        # From now on the reader finds them, so that no look-up misses them.
        self.machine.forget(batch.finals)
        # Before the waiters: when a `flush` returns, its results have been sent.
        self._delivery.release(prepared)
        self._observer.committed(batch, written)
        for participant in self.participants:
            participant.committed()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _set_timer(self) -> None:
        due = self.machine.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            delay = due - self.clock.monotonic()
            # The heartbeat notices later deadlines.
            if delay < HEARTBEAT_S:
                # At least a millisecond, so that a deadline that is postponed again does not spin
                # the loop.
                self._timer = self._loop.call_later(max(delay, 0.001), self.tick)

    def _heartbeat(self) -> None:
        # First, because `tick` cancels it if the dispatcher fails.
        self._heartbeat_timer = self._loop.call_later(HEARTBEAT_S, self._heartbeat)
        self.tick()
        if self._stopped is None:
            self._set_timer()

    def _fail(self, error: BaseException) -> None:
        log.error("dispatcher failed", exc_info=error)
        # First: waiters that are notified below must not be able to apply anything.
        self._stop(errors.HubStopped(f"the dispatcher failed: {error}"))
        for participant in self.participants:
            participant.aborted(error)
        self._observer.failed(error)

    def _stop(self, why: errors.HubStopped) -> None:
        if self._stopped is not None:
            return
        self._stopped = why
        for timer in (self._heartbeat_timer, self._timer):
            if timer is not None:
                timer.cancel()
        # All waiters, also those of a batch that is being written: its result may never come.
        for waiter in list(self._unflushed):
            if not waiter.done():
                waiter.set_exception(why)
