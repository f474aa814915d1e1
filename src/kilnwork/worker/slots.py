"""The worker's slots: forks and kills them as ordered, and reports their ends.

Used by `agent`. The slot and the dispatcher agree on what the slot runs, without the agent. The
agent has only the page, on which the slot records what it runs, and the read end of its output
pipe, in which a slot that died may have left its last output.
"""

import array
import asyncio
import contextlib
import fcntl
import functools
import logging
import os
import signal
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kilnwork.api import reasons
from kilnwork.channel import messages, worker_side
from kilnwork.kit import digests
from kilnwork.worker import (
    attempt_output,
    line_buffer,
    memory_watch,
    outcome_rules,
    pod_log_writer,
    slot_page,
    zygote_link,
    zygote_supervisor,
)

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds by which the report of a slot that ended within this time, with no call running, is
delayed, so that slots are not opened in quick succession.
"""

DRAIN_S = 1.0
"""Seconds between two checks for full pipes; see `drain_full_pipes`."""
DRAIN_BYTES = 1 << 20
"""Maximum bytes that are taken from a full pipe at each check."""

MAX_LAST_WORDS_BYTES = 1 << 20
"""Maximum bytes that are read of the output of a slot that died: as many as its pipe holds."""


@dataclass(slots=True)
class _Slot:
    """One slot that the dispatcher has requested."""

    opening: messages.SlotOpening
    page: slot_page.SlotPage
    reading: int
    """Read end of the slot's output pipe; -1 after everything was read."""
    opened: float
    """Time of the event loop's clock at which the slot was opened."""
    asked: bool = False
    """Whether the dispatcher ordered the end of the slot; see `messages.SlotGone`."""
    reason: str = ""
    """Reason why the slot was ended without an order; "" if there is none. See
    `messages.SlotGone`.
    """
    message: str = ""
    """Text that explains why the slot was ended; "": `_report_end` chooses the text."""
    stuck: slot_page.RunningAttempt | None = None
    """The attempt that was on top of the stack at the last check, if the pipe was full then;
    otherwise None.
    """


class Slots:
    """All slots of a worker; see the module.

    `explain_kill`: see `memory_watch`.
    """

    def __init__(
        self,
        *,
        link: worker_side.Peer,
        shared: pod_log_writer.StdoutWriter,
        explain_kill: Callable[[], str],
    ) -> None:
        self._link = link
        self._explain_kill = explain_kill
        self._stdout = shared
        self._slots: dict[bytes, _Slot] = {}
        self._supervisor: zygote_supervisor.ZygoteSupervisor
        self._late: dict[bytes, asyncio.TimerHandle] = {}

    def use(self, supervisor: zygote_supervisor.ZygoteSupervisor) -> None:
        """Set the supervisor through which slots are forked; call before any other method."""
        self._supervisor = supervisor

    @property
    def living(self) -> tuple[messages.SlotOpening, ...]:
        """Return all slots that were requested and whose end is not known yet."""
        return tuple(slot.opening for slot in self._slots.values())

    def open(self, name: bytes) -> None:
        """Fork a slot, after sending the dispatcher the digest of its secret."""
        if name in self._slots:
            return
        secret = os.urandom(32).hex()
        opening = messages.SlotOpening(name, digests.sha256_of([secret.encode()]))
        try:
            page, reading, writing, *own_copies = _descriptors()
        except OSError as error:
            self.refuse(name, f"the worker cannot open a slot: {error.strerror}")
            return
        opened = asyncio.get_running_loop().time()
        self._slots[name] = _Slot(opening, slot_page.SlotPage(own_copies[0]), own_copies[1], opened)
        # Before the fork: the dispatcher refuses a slot whose digest it does not have yet.
        self._link.send(opening)
        try:
            self._supervisor.fork_slot(name, secret, (page, reading, writing))
        except OSError as error:
            why = f"the worker cannot start a process: {error.strerror}"
            self.slot_ended(zygote_link.SlotEnded(name, None, why, proof=True))

    def kill(self, name: bytes) -> None:
        slot = self._slots.get(name)
        if slot is None:
            self.refuse(name, "there is no such slot", asked=True)
            return
        # The end is reported when the zygote has waited for the process.
        slot.asked = True
        self._supervisor.kill(name)

    def kill_all(self, reason: reasons.Reason) -> None:
        """Kill all slots; `reason` is reported as the cause."""
        for name, slot in self._slots.items():
            slot.reason = slot.reason or str(reason)
            self._supervisor.kill(name)

    def candidates(self) -> list[memory_watch.Candidate]:
        """Return the slots that may be ended to free memory."""
        return [
            memory_watch.Candidate(pid, functools.partial(self._end_for_memory, name))
            for name, slot in self._slots.items()
            if not slot.asked and not slot.reason and (pid := self._supervisor.pid(name))
        ]

    def refuse(self, name: bytes, message: str, *, asked: bool = False) -> None:
        """Report that no slot process of this name exists, which is proof that nothing runs in
        it.
        """
        self._link.report(
            lambda serial: messages.SlotGone(serial, name, None, None, asked, message, proof=True)
        )

    def slot_ended(self, report: zygote_link.SlotEnded) -> None:
        """Report the end of a slot, after sending its last output."""
        slot = self._slots[report.slot]
        top = slot.page.read()
        if report.code == -signal.SIGKILL and not (slot.asked or slot.reason):
            slot.message = self._explain_kill()
            slot.reason = str(reasons.Reason.OUT_OF_MEMORY) if slot.message else ""
        self._send_last_words(slot, top)
        loop = asyncio.get_running_loop()
        # No delay if its end was requested: the dispatcher waits for that proof.
        early = loop.time() - slot.opened < PAUSE_S and top is None and not slot.asked
        if early and not self._supervisor.closing:
            self._late[report.slot] = loop.call_later(PAUSE_S, self._report_end, slot, report, None)
        else:
            self._report_end(slot, report, top)

    def _end_for_memory(self, name: bytes, message: str) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            slot.reason, slot.message = str(reasons.Reason.OUT_OF_MEMORY), message
            self._supervisor.kill(name)

    async def drain_full_pipes(self) -> None:
        """Read the output of slots that do not read it themselves, from time to time, until
        cancelled.

        A slot cannot read its pipe while native code prints without releasing the interpreter lock,
        and that code blocks until its output is read.
        """
        while True:
            await asyncio.sleep(DRAIN_S)
            for slot in self._slots.values():
                if slot.reading >= 0:
                    self._drain_full_pipe(slot)

    def _drain_full_pipe(self, slot: _Slot) -> None:
        page, pipe = slot.page, slot.reading
        # Full twice with the same attempt and byte count: the slot has read nothing in between.
        before, slot.stuck = slot.stuck, page.read() if _is_full(pipe) else None
        if slot.stuck is None or before != slot.stuck or not page.has_room:
            return
        # The slot reads its own pipe under this lock; if both read at once, they would mix up the
        # output.
        if page.try_lock():
            try:
                # Checked again under the lock: the slot may have read the pipe by now.
                if _is_full(pipe):
                    page.spill(pipe, DRAIN_BYTES)
            except OSError as error:
                log.warning("output cannot be taken", extra={"why": str(error)})
            finally:
                page.unlock()

    def close(self) -> None:
        """Drop the reports of ends that are still delayed; see `PAUSE_S`."""
        for timer in self._late.values():
            timer.cancel()

    def _report_end(
        self, slot: _Slot, report: zygote_link.SlotEnded, top: slot_page.RunningAttempt | None
    ) -> None:
        name, asked, reason = report.slot, slot.asked, slot.reason
        self._slots.pop(name, None)
        self._late.pop(name, None)
        slot.page.close()
        message = slot.message or report.message or outcome_rules.describe_slot_end(report.code)
        code = None if report.code is None else outcome_rules.shell_code(report.code)
        ref = None if top is None else top.ref
        self._link.report(
            lambda serial: messages.SlotGone(
                serial, name, ref, code, asked, message, report.proof, reason
            )
        )
        log.debug("slot over", extra={"slot": name.hex(), "code": code, "proof": report.proof})

    def _send_last_words(self, slot: _Slot, top: slot_page.RunningAttempt | None) -> None:
        """Send the remaining output of a dead slot as output of the attempt that ran last."""
        copied = line_buffer.Lines(self._stdout)
        offset = 0 if top is None else top.printed
        for data in _last_words(slot):
            copied.write(data)
            if top is not None:
                self._link.send(messages.Log(top.ref, offset, data))
            offset += len(data)
        copied.close()
        os.close(slot.reading)
        slot.reading = -1


def _last_words(slot: _Slot) -> Iterator[bytes]:
    left = MAX_LAST_WORDS_BYTES
    # Limited, because a process that could not be killed may go on writing.
    while left > 0 and (data := slot.page.fetch(attempt_output.READ_BYTES)):
        left -= len(data)
        yield data
    # After the spill, whose output left the pipe earlier.
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (data := os.read(slot.reading, attempt_output.READ_BYTES)):
            left -= len(data)
            yield data


def _is_full(pipe: int) -> bool:
    """Return whether the pipe is so full that a write may block."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] + attempt_output.READ_BYTES > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def _descriptors() -> list[int]:
    """Create the page and the output pipe of a slot; return their descriptors.

    These are the page, the read end and the write end of the pipe and, once more for the agent, the
    page and the read end.
    """
    made: list[int] = []
    try:
        made.append(slot_page.create_page())
        made += os.pipe()
        made += os.dup(made[0]), os.dup(made[1])
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    # O_NONBLOCK belongs to the open file, so it applies to the slot's copy too.
    os.set_blocking(made[1], False)
    return made
