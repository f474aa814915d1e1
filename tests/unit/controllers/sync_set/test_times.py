"""The time limits of a SyncSet."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, sync_set
from kilnwork.controllers.sync_set import status, times
from kilnwork.kit import clock

NOW = 1_800_000_000.0


def declared(**spec: Any) -> sync_set.SyncSet:
    body = {
        "resources": {"groups": [{"name": "a"}]},
        "flow": {"do": [{"x": {"command": ["true"]}}]},
        "data": {"pond": {"timeoutSeconds": 60}},
        **spec,
    }
    return sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="risk"),
        spec=msgspec.convert(body, sync_set.SyncSetSpec),
        status=sync_set.SyncSetStatus(admission_time=clock.rfc3339(NOW)),
    )


LATER = clock.rfc3339(NOW + 100)


@pytest.mark.parametrize(
    ("spec", "after_s", "reason"),
    [
        ({}, 1e9, None),
        ({"killTimestamp": LATER}, 99, None),
        ({"killTimestamp": LATER}, 100, "Killed"),
        ({"deadlineSeconds": 30}, 29, None),
        ({"deadlineSeconds": 30}, 30, "DeadlineExceeded"),
        ({"killTimestamp": LATER, "deadlineSeconds": 30}, 100, "Killed"),
    ],
)
def test_end_is_requested_by_kill_time_or_deadline(
    spec: dict[str, Any], after_s: float, reason: str | None
) -> None:
    found = times.end_asked(declared(**spec), NOW + after_s)
    assert (None if found is None else found.reason) == reason


@pytest.mark.parametrize(
    ("spec", "left_s"),
    [
        ({}, None),
        ({"killTimestamp": LATER}, 90),
        ({"killTimestamp": LATER, "deadlineSeconds": 30}, 20),
        ({"deadlineSeconds": 5}, 0),
    ],
)
def test_seconds_until_the_next_limit(spec: dict[str, Any], left_s: float | None) -> None:
    assert times.next_end_s(declared(**spec), NOW + 10) == left_s


def test_data_is_late_after_its_timeout() -> None:
    assert times.late_s(declared(), NOW, now=NOW + 50) == 10
    assert times.late_s(declared(), None, now=NOW) is None
    late = times.too_late(declared(), "pinning", status.Explanation("X", "n1 waits"))
    assert late.reason == "DataTimedOut"
    assert late.message == "pinning took longer than data.pond.timeoutSeconds, 60: n1 waits"


def test_the_shortest_wait_is_never_negative() -> None:
    assert times.first_s(None, 3.0, 2.0) == 2.0
    assert times.first_s(-1.0, 2.0) == 0.0
    assert times.first_s(None) is None
