"""Ids and randomness, handed in: the only module that draws them. Used by all rooms.

A task id is 16 bytes in SQL and frames and a dashed UUID wherever people or Kubernetes see it.
"""

import os
import random
import time
import uuid
from collections.abc import Callable
from typing import NewType

TaskId = NewType("TaskId", bytes)
"""16 bytes: `metadata.uid` of a declared task, else a UUIDv7."""

NewUid = Callable[[], str]
Entropy = random.Random
"""Seeded in tests, so that a failing run can be repeated from its printed seed."""


def new_uid() -> str:
    """A random UUID (version 4), the form of `metadata.uid`."""
    return str(uuid.uuid4())


def new_task_id() -> TaskId:
    """A UUIDv7 (RFC 9562): sorts by time, so that journal rows land next to each other."""
    milliseconds = time.time_ns() // 1_000_000
    raw = bytearray(milliseconds.to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return TaskId(bytes(raw))


def task_id(text: str) -> TaskId:
    """The 16 bytes of a dashed UUID; raises ValueError for anything else."""
    return TaskId(uuid.UUID(text).bytes)


def task_text(task: TaskId) -> str:
    """The dashed form that people and Kubernetes see."""
    text = task.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def system_entropy() -> Entropy:
    """Entropy for jitter and generated names; not for secrets (those use `secrets`)."""
    return random.Random()
