"""The first frame of a peer: what is wrong with it is refused by name, before anything else."""

import hashlib
from typing import Any, cast

import pytest

from kilnwork.api import task
from kilnwork.channel import messages
from kilnwork.dispatch.hub import authentication, links
from kilnwork.kit import coroutines
from support import verifiers

SLOT = b"s" * 16
SECRET = "of the slot"


class Link:
    """Remembers what was refused."""

    number = 1

    def __init__(self) -> None:
        self.refused: list[tuple[str, bool]] = []

    def refuse(self, reason: str, message: str, *, retry: bool) -> None:
        self.refused.append((reason, retry))


class Door:
    """An authenticator, and the peers that it has let in."""

    def __init__(self) -> None:
        self.background = coroutines.BackgroundWork("test")
        self.entered: list[messages.AnyHello] = []
        self.checks = authentication.Authenticator(
            verifiers.OneSecret(), self.background, lambda _, hello: self.entered.append(hello)
        )
        self.checks.epoch = 5

    async def knock(self, hello: messages.AnyHello) -> list[tuple[str, bool]]:
        link = Link()
        self.checks.check(cast("links.Link", link), hello)
        await self.background.wait(timeout_s=5)
        return link.refused


def driver(**facts: Any) -> messages.DriverHello:
    given = {
        "version": messages.VERSION, "session": b"d" * 16, "credential": "secret",
        "namespace": "ns", "epoch": 0,
    }  # fmt: skip
    return messages.DriverHello(**{**given, **facts})


def worker(**facts: Any) -> messages.Hello:
    given = {
        "version": messages.VERSION, "role": "worker", "session": b"w" * 16, "credential": "secret",
        "namespace": "ns", "cluster": "c", "worker": "w", "pod_uid": "u", "node": "n", "slots": 1,
        "epoch": 0, "running": (),
    }  # fmt: skip
    return messages.Hello(**{**given, **facts})


def slot(credential: str = SECRET) -> messages.SlotHello:
    return messages.SlotHello(messages.VERSION, SLOT, credential, 0, ())


@pytest.mark.parametrize("hello", [driver(), driver(epoch=5), worker(), worker(slots=0)])
async def test_valid_hello_is_accepted(hello: messages.AnyHello) -> None:
    door = Door()
    assert await door.knock(hello) == []
    assert door.entered == [hello]


@pytest.mark.parametrize(
    ("hello", "refusal"),
    [
        (driver(version=messages.VERSION + 1), ("Version", False)),
        (driver(epoch=6), ("Epoch", True)),
        (driver(session=b"short"), ("Malformed", False)),
        (driver(namespace=""), ("Malformed", False)),
        (driver(credential="other"), ("Credential", False)),
        (worker(credential="other"), ("Credential", True)),
        (worker(role="boss"), ("Malformed", False)),
        (worker(slots=authentication.MAX_SLOTS + 1), ("Malformed", False)),
        (worker(pod_uid=""), ("Malformed", False)),
        (worker(role="executor", cluster="c"), ("Malformed", False)),
        (
            worker(role="executor", cluster=task.executor_queue("http"), namespace="", slots=0),
            ("Malformed", False),
        ),
        (slot(), ("NotYet", True)),
    ],
)
async def test_invalid_hello_is_refused_with_the_reason(
    hello: messages.AnyHello, refusal: tuple[str, bool]
) -> None:
    door = Door()
    assert await door.knock(hello) == [refusal]
    assert door.entered == []


async def test_a_slot_has_the_secret_that_its_agent_has_announced() -> None:
    door = Door()
    digest = hashlib.sha256(SECRET.encode()).digest()
    door.checks.announce_slot(SLOT, digest, living={SLOT})
    assert await door.knock(slot("another")) == [("Credential", False)]
    assert await door.knock(slot()) == []
    door.checks.forget_slot(SLOT)
    assert await door.knock(slot()) == [("NotYet", True)]


async def test_secrets_of_ended_slots_are_dropped() -> None:
    door = Door()
    digest = hashlib.sha256(SECRET.encode()).digest()
    door.checks.announce_slot(SLOT, digest, living={SLOT})
    for number in range(authentication.MAX_SLOTS):
        door.checks.announce_slot(number.to_bytes(16, "big"), b"", living={SLOT})
    assert len(door.checks._digests) == 2
    assert await door.knock(slot()) == []
