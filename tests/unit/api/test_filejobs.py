"""File jobs: defaults that differ from those of a Task reach the Task."""

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import task as api_task


def test_max_attempts_of_a_part_does_not_change_max_losses() -> None:
    spec = msgspec.convert({"retry": {"maxAttempts": 6}}, filejobs.FileJobSpec)
    assert spec.retry.max_losses == filejobs.MAX_LOSSES
    assert spec.retry.max_attempts == 6


def test_retry_of_a_part_is_converted_to_that_of_a_task() -> None:
    written = msgspec.json.encode(filejobs.PartRetry().of_task)
    read = msgspec.json.decode(written, type=api_task.Retry)
    assert read.max_attempts == 3
    assert read.max_losses == filejobs.MAX_LOSSES


def test_counts_of_records_add_up() -> None:
    one = filejobs.Records.of(3, 2, 1)
    assert one == filejobs.Records(total=6, succeeded=3, failed=2, skipped=1)
    assert sum([one, one], start=filejobs.Records()) == filejobs.Records.of(6, 4, 2)
