"""A key that has created a job is never taken for a new one."""

from pathlib import Path

from kilnwork.jobs import file_job_types, idempotency_key_filter
from support.job_world import NS, World


def names(start: int, count: int) -> list[idempotency_key_filter.Name]:
    return [(NS, f"user {n % 7}", f"key {n}") for n in range(start, start + count)]


def test_added_keys_are_found_with_few_false_positives() -> None:
    found = idempotency_key_filter.KeyFilter()
    found.fill(names(0, 100_000))
    assert all(name in found for name in names(0, 100_000))
    wrong = sum(name in found for name in names(100_000, 100_000))
    assert wrong < 2_000  # 1 in 84 is expected; their count has a deviation of 35


def test_empty_filter_has_no_key() -> None:
    found = idempotency_key_filter.KeyFilter()
    assert not any(name in found for name in names(0, 1_000))


async def test_key_is_known_after_restart(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = await world.create(b"{}\n", key="k")
        await world.finished(first.id)
        await world.restart()
        again = await world.create(b"{}\n", key="k")
        assert again.id == first.id
        other = file_job_types.IdempotencyKey("me", "another", b"print")
        assert world.jobs.find_by_key(NS, other) is None
