"""Names of the tasks of indexes, and ranges of failed indexes."""

import pytest

from kilnwork.jobs import index_item_source


@pytest.mark.parametrize(
    ("item", "name"), [(0, "report-finalizer"), (1, "report-0"), (12, "report-11")]
)
def test_task_names_of_items_and_finalizer(item: int, name: str) -> None:
    assert index_item_source.task_name("report", item) == name


@pytest.mark.parametrize(
    ("text", "items"),
    [("", []), ("0", [1]), ("0-2", [1, 2, 3]), ("0,2-3", [1, 3, 4]), ("1,…", [2])],
)
def test_index_ranges_are_parsed_into_items(text: str, items: list[int]) -> None:
    assert list(index_item_source._items_of_ranges(text)) == items


@pytest.mark.parametrize("size", [1, index_item_source.MAX_NEWEST])
def test_small_job_shows_all_items(size: int) -> None:
    assert index_item_source._limit_shown(size, [1]) == tuple(range(1, size + 1))


def test_large_job_shows_limited_number_of_items() -> None:
    size = index_item_source.MAX_NEWEST + 1
    assert index_item_source._limit_shown(size, [5, 3]) == (5, 3)
    assert (
        len(index_item_source._limit_shown(size, range(1, size + 1)))
        == index_item_source.MAX_NEWEST
    )
