"""Options that commands share."""

import pytest

from kilnwork.cli import options


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("2m", 120), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert options.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "1.2.3", "m5", "-5", ".s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        options.parse_duration(text)
