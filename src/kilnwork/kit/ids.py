"""Ids of tasks, objects and sessions, and sources of random numbers. Used by all packages.

A task id is 16 bytes in SQL and frames and a dashed UUID wherever people or Kubernetes see it.
"""

import functools
import os
import random
import re
import time
import uuid
from collections.abc import Callable
from typing import NewType

TaskId = NewType("TaskId", bytes)
"""A task id: 16 bytes, the `metadata.uid` of a declared task, else a UUIDv7."""

NewUid = Callable[[], str]
Entropy = random.Random
"""A source of random numbers; tests seed it, so that a failing run can be repeated from its printed
seed.
"""


_drawn: list[bytes] = []
_DRAWN_AT_ONCE = 256


def _sixteen() -> bytes:
    """Return 16 random bytes, taken from a larger draw.

    Each getrandom(2) call releases the interpreter lock, which a busy thread may then hold for
    milliseconds.
    """
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            many = os.urandom(16 * _DRAWN_AT_ONCE)
            _drawn.extend(many[at : at + 16] for at in range(0, len(many), 16))


def new_uid() -> str:
    """Return a random UUID (version 4), in the form of `metadata.uid`."""
    text = _sixteen().hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


os.register_at_fork(after_in_child=_drawn.clear)


_UUID7 = 0x7 << 76 | 0x2 << 62
_UUID7_FIXED = 0xF << 76 | 0x3 << 62
"""The bits of a UUIDv7 that are the same in all of them: version and variant (RFC 9562 §5.7)."""


def new_task_id() -> TaskId:
    """Return a new task id, a UUIDv7 (RFC 9562): it sorts by time, so that journal rows land next
    to each other.
    """
    bits = time.time_ns() // 1_000_000 << 80 | int.from_bytes(_sixteen()[:10], "big")
    return TaskId((bits & ~_UUID7_FIXED | _UUID7).to_bytes(16, "big"))


def new_session() -> bytes:
    """Return a new session id of a worker process, a UUIDv7, which contains the start time."""
    return new_task_id()


def session_began(session: bytes) -> float | None:
    """Return when a session began, in seconds of its machine's wall clock; None if the id contains
    no time.
    """
    bits = int.from_bytes(session, "big")
    return (bits >> 80) / 1000 if bits & _UUID7_FIXED == _UUID7 else None


class TaskIds:
    """Generator of many task ids: UUIDv7 (RFC 9562 §6.2, method 1), strictly increasing.

    An id has 48 bits of milliseconds, 48 random bits of this object, and a counter of 26 bits with
    a random start: ids of two objects collide only if the objects drew the same 48 bits and their
    counters are equal in the same millisecond. The counter comes last, so that the ends of ids
    differ and people can refer to a task by its last digits. Ids increase even if the clock goes
    back. Not for several threads at once.
    """

    __slots__ = ("_bits", "_count", "_milliseconds")

    _COUNTS = 1 << 26

    def __init__(self) -> None:
        bits = int.from_bytes(os.urandom(10), "big")
        fixed = bits >> 62 & 0xFFF, bits >> 26 & 0xF_FFFF_FFFF
        self._bits = 0x7 << 76 | fixed[0] << 64 | 0x2 << 62 | fixed[1] << 26
        self._milliseconds = 0
        self._count = bits & self._COUNTS - 1

    def take(self) -> TaskId:
        """Return the next task id."""
        now = time.time_ns() // 1_000_000
        count = self._count = self._count + 1
        if count >= self._COUNTS:
            count = self._count = 0
            now = max(now, self._milliseconds + 1)
        if now > self._milliseconds:
            self._milliseconds = now
        else:
            now = self._milliseconds
        return TaskId((now << 80 | self._bits | count).to_bytes(16, "big"))


MIN_ABBREVIATED = 6
"""Minimum number of digits that may abbreviate an id; with fewer, the text is too likely to be a
word.
"""

_DIGITS = re.compile(rf"[0-9a-f]{{{MIN_ABBREVIATED},31}}")


def abbreviated(text: str) -> str | None:
    """Return the hexadecimal digits of an abbreviated task id (its beginning or end); None if the
    text is not one.
    """
    digits = text.lower().replace("-", "")
    return digits if _DIGITS.fullmatch(digits) else None


@functools.lru_cache(maxsize=4096)
def task_id(text: str) -> TaskId:
    """Return the task id of a UUID as 16 bytes.

    Accepts every form that `uuid.UUID` accepts, such as the dashed one; raises ValueError for
    others.
    """
    return TaskId(uuid.UUID(text).bytes)


def task_text(task: TaskId) -> str:
    """Return a task id in the dashed form that people and Kubernetes see."""
    text = task.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def system_entropy() -> Entropy:
    """Return a new random generator with a seed of the system.

    For jitter and generated names, not for secrets (those use `secrets`).
    """
    return random.Random()
