"""Spans of time as kubectl writes them."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import human_durations
from kilnwork.kit import clock

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (700_000, "8d"),
        (86_400 * 730, "2y"),
        (86_400 * 800, "2y70d"),
        (86_400 * 365 * 9, "9y"),
    ],
)
def test_durations_match_kubectl(seconds: float, text: str) -> None:
    assert human_durations.human(seconds) == text


@pytest.mark.parametrize("value", [None, 3, "yesterday"])
def test_unreadable_time_is_unknown(value: Any) -> None:
    assert human_durations.since(value, NOW) == "<unknown>"


def test_age_counts_from_creation_timestamp() -> None:
    made = {"metadata": {"creationTimestamp": clock.rfc3339(NOW - 300)}}
    assert human_durations.age(made, NOW) == "5m"
    assert human_durations.age({"metadata": {}}, NOW) == "<unknown>"
