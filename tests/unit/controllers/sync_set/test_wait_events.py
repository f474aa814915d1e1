"""Waits of a SyncSet: their start, and when they are announced."""

import msgspec
import pytest

from kilnwork.api import sync_set
from kilnwork.controllers.sync_set import wait_events


def shown(phase: str, reason: str = "X", **more: object) -> sync_set.SyncSetStatus:
    given = sync_set.SyncSetStatus(generation=1, phase=phase, reason=reason)
    return msgspec.structs.replace(given, **more)


def test_wait_with_a_new_message_keeps_its_start() -> None:
    first = wait_events.follow(None, shown("Placing", message="a"), now=5.0)
    again = wait_events.follow(first, shown("Placing", message="b"), now=9.0)
    assert again is first
    assert wait_events.seconds_to_announcement(again, now=9.0) == 6.0
    assert wait_events.seconds_to_announcement(again, now=20.0) == 0.0


@pytest.mark.parametrize(
    "other", [shown("Placing", "Y"), shown("Fetching"), shown("Placing", generation=2)]
)
def test_another_wait_counts_from_zero(other: sync_set.SyncSetStatus) -> None:
    first = wait_events.follow(None, shown("Placing"), now=5.0)
    found = wait_events.follow(first, other, now=9.0)
    assert found is not None
    assert found.since == 9.0


@pytest.mark.parametrize("phase", ["Running", "Suspended", "Succeeded", "Failed", "Killed"])
def test_running_or_finished_set_has_no_wait(phase: str) -> None:
    assert wait_events.follow(None, shown(phase), now=5.0) is None
    assert wait_events.seconds_to_announcement(None, now=5.0) is None


def test_storing_outputs_counts_as_a_wait() -> None:
    assert wait_events.follow(None, shown("Running", "KeepingOutputs"), now=5.0) is not None


def test_wait_is_announced_once() -> None:
    first = wait_events.follow(None, shown("Placing"), now=5.0)
    assert first is not None
    assert (
        wait_events.seconds_to_announcement(
            msgspec.structs.replace(first, announced=True), now=99.0
        )
        is None
    )


def test_only_refusals_have_a_limit() -> None:
    first = wait_events.follow(None, shown("Placing", "ObjectRefused"), now=5.0)
    assert wait_events.refusal_duration_s(first, now=65.0) == 60.0
    assert (
        wait_events.refusal_duration_s(
            wait_events.follow(first, shown("Placing"), now=9.0), now=99.0
        )
        == 0.0
    )
    assert wait_events.refusal_duration_s(None, now=9.0) == 0.0
