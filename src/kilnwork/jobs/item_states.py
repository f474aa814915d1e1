"""Item states of a job, packed into five bytes each, in memory and in the journal.

Used by `live_job_state.Job`, and by listings for jobs that are not in memory. Items are numbered
from 1. When an item changes, its whole page is written; pages are so small that the cost of a
change does not depend on the number of items.
"""

import sys
from array import array
from collections import deque
from collections.abc import Iterator
from enum import IntEnum

PAGE_BITS = 7
PAGE_ITEMS = 1 << PAGE_BITS
"""Number of items per page of 640 bytes: less than a quarter of a page of SQLite, which stores a
value of that size in place."""

_RUN_BYTES = 4
_SWAP = sys.byteorder == "big"


class ItemState(IntEnum):
    """State of an item; the numbers are stored in the journal. The last three states are final."""

    OPEN = 0
    """The item has no task yet."""
    SUBMITTED = 1
    """The item has a task."""
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4


class Items:
    """State and run of each item of a job. Run 0 stands for the job's `base_run`."""

    __slots__ = ("_cursor", "_reopened", "changed_pages", "runs", "states")

    def __init__(self, size: int) -> None:
        self.states = bytearray(size + 1)
        """State by item number; index 0 is not used."""
        self.runs = array("I", bytes(_RUN_BYTES * (size + 1)))
        self.changed_pages: set[int] = set()
        """Pages with changes that are not in the journal yet."""
        self._cursor = 1
        self._reopened: deque[int] = deque()

    @property
    def size(self) -> int:
        """Number of items of the job."""
        return len(self.states) - 1

    def set(self, item: int, state: ItemState, run: int | None = None) -> None:
        """Change the state of an item, and its run if a run is given."""
        self.states[item] = state
        if run is not None:
            self.runs[item] = run
        self.changed_pages.add(item >> PAGE_BITS)

    def reopen(self, item: int) -> None:
        """Set an item to OPEN, and put it before all other open items."""
        self.set(item, ItemState.OPEN)
        self._reopened.appendleft(item)

    def reopen_all(self) -> None:
        """Set all items that have not succeeded to OPEN, in the job's `base_run`."""
        for item, state in enumerate(self.states):
            if state != ItemState.SUCCEEDED and (state or self.runs[item]):
                self.set(item, ItemState.OPEN, 0)
        self._cursor = 1
        self._reopened.clear()

    def cancel_open(self) -> int:
        """Set all open items to CANCELLED; return the number of these items.

        The journal is not changed: open items of a finished job are read as cancelled.
        """
        count = self.states.count(ItemState.OPEN, 1)
        self.states[1:] = self.states[1:].replace(
            bytes((ItemState.OPEN,)), bytes((ItemState.CANCELLED,))
        )
        self._reopened.clear()
        return count

    def next_open(self) -> int | None:
        """Return the next item that gets a task, or None if no item is open.

        The caller must change the item's state before the next call.
        """
        while self._reopened:
            item = self._reopened.popleft()
            if self.states[item] == ItemState.OPEN:
                return item
        found = self.states.find(ItemState.OPEN, self._cursor)
        self._cursor = found if found > 0 else len(self.states)
        return found if found > 0 else None

    def in_state(self, state: ItemState) -> Iterator[int]:
        """Yield the numbers of all items in a state, in ascending order."""
        item = self.states.find(state, 1)
        while item > 0:
            yield item
            item = self.states.find(state, item + 1)

    def snapshot(self) -> "Items":
        """Return a copy of all states and runs that another thread may read."""
        found = Items(0)
        found.states, found.runs = self.states[:], self.runs[:]
        return found

    def page(self, number: int) -> bytes:
        """Return a page as stored in the journal: one byte of state per item, then four bytes of
        run per item, little-endian."""
        part = slice(number << PAGE_BITS, (number + 1) << PAGE_BITS)
        return bytes(self.states[part]) + _swapped(self.runs[part]).tobytes()

    def load_page(self, number: int, page: bytes) -> None:
        """Replace the states and runs of a page by those in `page`, as stored in the journal."""
        start, count = number << PAGE_BITS, len(page) // (1 + _RUN_BYTES)
        self.states[start : start + count] = page[:count]
        runs = array("I", page[count:])
        self.runs[start : start + count] = _swapped(runs)


def _swapped(runs: "array[int]") -> "array[int]":
    if _SWAP:
        runs.byteswap()
    return runs
