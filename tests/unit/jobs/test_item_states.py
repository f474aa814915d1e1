"""States of items are packed: a few bytes each in memory and in the journal, and changes are
small."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from kilnwork.jobs import item_states
from support import index_job_cost

_S = item_states.ItemState
MAX_MEMORY = 64
"""Bytes an item: 64 MB for a million."""

MAX_DISK = 100
MAX_PACKED = 5.1


def test_pages_store_states_and_runs() -> None:
    found = item_states.Items(1000)
    for item in range(1, 1001):
        found.set(item, _S(item % 5), item * 4_000_000)
    again = item_states.Items(1000)
    for page in sorted(found.changed_pages):
        again.load_page(page, found.page(page))
    assert again.states == found.states
    assert again.runs == found.runs
    assert sum(len(found.page(page)) for page in found.changed_pages) == 5 * 1001


def test_change_marks_one_page() -> None:
    found = item_states.Items(1_000_000)
    found.set(777_777, _S.SUCCEEDED, 3)
    [page] = found.changed_pages
    assert len(found.page(page)) == 5 * item_states.PAGE_ITEMS


def test_reopened_items_come_before_other_open_items() -> None:
    found, order = item_states.Items(5), []
    while (item := found.next_open()) is not None:
        found.set(item, _S.SUBMITTED)
        order.append(item)
        if order == [1, 2, 3]:
            found.reopen(2)
            found.reopen(1)
    assert order == [1, 2, 3, 1, 2, 4, 5]
    assert list(found.in_state(_S.SUBMITTED)) == [1, 2, 3, 4, 5]
    found.set(2, _S.SUCCEEDED, 1)
    found.set(4, _S.FAILED, 1)
    found.reopen_all()
    assert list(found.in_state(_S.OPEN)) == [1, 3, 4, 5]
    assert (found.runs[2], found.runs[4], found.next_open()) == (1, 0, 1)
    assert found.cancel_open() == 4
    assert found.next_open() is None


@pytest.mark.timeout(300)
async def test_memory_and_disk_per_item_are_bounded(memory_path: Path) -> None:
    """Measured from submission to the end, as the difference of two jobs of different size."""
    sizes, peaks, costs = (1_000, 20_000), [], []  # apart by more than a process keeps anyway
    for size in sizes:
        directory = memory_path / str(size)
        directory.mkdir()
        gc.freeze()  # so that other tests' objects do not put off the collection of ours
        gc.collect()
        tracemalloc.start()
        try:
            costs.append(await index_job_cost.measure(directory, size))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
            gc.unfreeze()
    more = sizes[1] - sizes[0]
    assert (peaks[1] - peaks[0]) / more < MAX_MEMORY
    assert (costs[1].disk - costs[0].disk) / more < MAX_DISK
    assert costs[1].pages / sizes[1] < MAX_PACKED
