"""How many bad records a mapped file may have."""

import pytest

from kilnwork.files import mapped_file


@pytest.mark.parametrize(
    ("limit", "bad", "exceeded"),
    [
        (mapped_file.Limit(), 100, False),
        (mapped_file.Limit(records=0), 0, False),
        (mapped_file.Limit(records=0), 1, True),
        (mapped_file.Limit(records=2), 2, False),
        (mapped_file.Limit(records=2), 3, True),
        (mapped_file.Limit(percent=5.0), 5, False),
        (mapped_file.Limit(percent=5.0), 6, True),
        (mapped_file.Limit(percent=0.0), 1, True),
    ],
)
def test_limit_is_exceeded_only_above_it(
    limit: mapped_file.Limit, bad: int, *, exceeded: bool
) -> None:
    assert limit.exceeded(bad, of=100) is exceeded
