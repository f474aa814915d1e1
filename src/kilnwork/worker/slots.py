"""The slots of this worker: opened and killed as told, and what is said of their end.

Used by `agent`. What a slot runs is between it and the dispatcher; the agent knows only the page,
on which the slot keeps what is on top, and the end of the pipe for output, in which a slot that
died may have left its last words.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from dataclasses import dataclass

from kilnwork.api import reasons
from kilnwork.channel import messages, peer
from kilnwork.worker import births, lines, mirror, nursery, outcomes, output, page

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""A slot that ended before it ran anything is reported so much later: no storm of openings."""

LONGEST_LAST_WORDS = 1 << 20


@dataclass(slots=True)
class _Slot:
    """One slot that was asked for.

    `reading`: the end of its pipe for output that is kept here. `opened`: the loop's clock.
    `asked`, `reason`: see `messages.SlotGone`.
    """

    opening: messages.SlotOpening
    page: page.Page
    reading: int
    opened: float
    asked: bool = False
    reason: str = ""


class Slots:
    """See the module."""

    def __init__(self, *, link: peer.Peer, shared: mirror.Mirror) -> None:
        self._link = link
        self._mirror = shared
        self._slots: dict[bytes, _Slot] = {}
        self._nursery: nursery.Nursery
        self._late: set[asyncio.TimerHandle] = set()

    def use(self, births_by: nursery.Nursery) -> None:
        """Have slots born here; before anything else."""
        self._nursery = births_by

    @property
    def living(self) -> tuple[messages.SlotOpening, ...]:
        """All that were asked for and whose end is not known."""
        return tuple(slot.opening for slot in self._slots.values())

    def open(self, name: bytes) -> None:
        """Have a slot born, and tell the dispatcher by what to know it, in this order reversed."""
        if name in self._slots:
            return
        secret = secrets.token_hex(32)
        opening = messages.SlotOpening(name, hashlib.sha256(secret.encode()).digest())
        try:
            sheet, reading, writing, ours = _descriptors()
        except OSError as error:
            self.refuse(name, f"the worker cannot open a slot: {error.strerror}")
            return
        opened = asyncio.get_running_loop().time()
        self._slots[name] = _Slot(opening, page.Page(sheet), ours, opened)
        self._link.send(opening)
        try:
            self._nursery.bear(name, secret, (sheet, reading, writing))
        except OSError as error:
            why = f"the worker cannot start a process: {error.strerror}"
            self.gone(births.Gone(name, None, why, proof=True))

    def kill(self, name: bytes) -> None:
        """The dispatcher wants it gone."""
        slot = self._slots.get(name)
        if slot is None:
            self.refuse(name, "there is no such slot", asked=True)
            return
        slot.asked = True
        self._nursery.kill(name)

    def kill_all(self, reason: reasons.Reason) -> None:
        """Nothing may run here any more; `reason` says why."""
        for name, slot in self._slots.items():
            slot.reason = slot.reason or str(reason)
            self._nursery.kill(name)

    def refuse(self, name: bytes, message: str, *, asked: bool = False) -> None:
        """There is no process of that name: that is proof."""
        self._link.report(
            lambda serial: messages.SlotGone(serial, name, None, None, asked, message, proof=True)
        )

    def gone(self, report: births.Gone) -> None:
        """A slot has ended; what runs in no slot any more is told after its last words."""
        slot = self._slots[report.slot]
        top = slot.page.read()
        self._pass_on_last_words(slot, top)
        loop = asyncio.get_running_loop()
        early = loop.time() - slot.opened < PAUSE_S and top is None and not slot.asked
        if early and not self._nursery.closing:
            timer = loop.call_later(PAUSE_S, self._tell, slot, report, None)
            self._late.add(timer)
        else:
            self._tell(slot, report, top)

    def close(self) -> None:
        """Nothing is reported any more."""
        for timer in self._late:
            timer.cancel()

    def _tell(self, slot: _Slot, report: births.Gone, top: page.Top | None) -> None:
        name, asked, reason = report.slot, slot.asked, slot.reason
        self._slots.pop(name, None)
        slot.page.close()
        message = report.message or outcomes.end_of_slot(report.code)
        code = None if report.code is None else outcomes.shell_code(report.code)
        ref = None if top is None else top.ref
        self._link.report(
            lambda serial: messages.SlotGone(
                serial, name, ref, code, asked, message, report.proof, reason
            )
        )
        log.debug("slot over", extra={"slot": name.hex(), "code": code, "proof": report.proof})

    def _pass_on_last_words(self, slot: _Slot, top: page.Top | None) -> None:
        """What nobody has read from the pipe belongs to what ran last."""
        copied = lines.Lines(self._mirror)
        offset = 0 if top is None else top.printed
        end = offset + LONGEST_LAST_WORDS
        with contextlib.suppress(BlockingIOError):
            while offset < end and (data := os.read(slot.reading, output.READ_BYTES)):
                copied.write(data)
                if top is not None:
                    self._link.send(messages.Log(top.ref, offset, data))
                offset += len(data)
        copied.close()
        os.close(slot.reading)


def _descriptors() -> tuple[int, int, int, int]:
    """Page, both ends of the pipe for output, and its read end once more, for us."""
    made: list[int] = []
    try:
        made.append(page.create())
        made += os.pipe()
        made.append(os.dup(made[1]))
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    os.set_blocking(made[1], False)
    sheet, reading, writing, ours = made
    return sheet, reading, writing, ours
