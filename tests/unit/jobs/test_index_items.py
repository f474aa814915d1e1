"""Names of the tasks of indexes, and ranges of indexes that have failed."""

import pytest

from kilnwork.jobs import index_items


@pytest.mark.parametrize(
    ("item", "name"), [(0, "report-finalizer"), (1, "report-0"), (12, "report-11")]
)
def test_an_item_is_named_by_its_index_and_the_finalizer_by_its_work(item: int, name: str) -> None:
    assert index_items.task_name("report", item) == name


@pytest.mark.parametrize(
    ("text", "items"),
    [("", []), ("0", [1]), ("0-2", [1, 2, 3]), ("0,2-3", [1, 3, 4]), ("1,…", [2])],
)
def test_ranges_of_indexes_name_items(text: str, items: list[int]) -> None:
    assert list(index_items._items_of_ranges(text)) == items


@pytest.mark.parametrize("size", [1, index_items.MAX_NEWEST])
def test_a_small_job_shows_all_of_its_items(size: int) -> None:
    assert index_items._limit_shown(size, [1]) == tuple(range(1, size + 1))


def test_a_large_job_shows_what_was_found_up_to_a_bound() -> None:
    size = index_items.MAX_NEWEST + 1
    assert index_items._limit_shown(size, [5, 3]) == (5, 3)
    assert len(index_items._limit_shown(size, range(1, size + 1))) == index_items.MAX_NEWEST
