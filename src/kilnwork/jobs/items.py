"""The states of a job's items, packed: five bytes each, in memory as in the journal.

Used by `records.Job`. Items are numbered from 1. A page is what is written when one of its items
changes: small enough that a change costs the same however many items there are.
"""

import sys
from array import array
from collections import deque
from collections.abc import Iterator
from enum import IntEnum

PAGE_BITS = 7
PAGE_ITEMS = 1 << PAGE_BITS
"""Items of a page: 640 bytes, as SQLite keeps less than a quarter of its own page in one place."""

_RUN_BYTES = 4
_SWAP = sys.byteorder == "big"


class ItemState(IntEnum):
    """The state of an item; the journal has the numbers. The last three are final."""

    OPEN = 0
    """It waits for a task."""
    SUBMITTED = 1
    """It has a task."""
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4


class Items:
    """A state and a run of each item. A run of 0: the job's `base_run`."""

    __slots__ = ("_cursor", "_reopened", "changed_pages", "runs", "states")

    def __init__(self, size: int) -> None:
        self.states = bytearray(size + 1)
        """By number; 0 is not used."""
        self.runs = array("I", bytes(_RUN_BYTES * (size + 1)))
        self.changed_pages: set[int] = set()
        """Pages that the journal has not got yet."""
        self._cursor = 1
        self._reopened: deque[int] = deque()

    @property
    def size(self) -> int:
        """How many items there are."""
        return len(self.states) - 1

    def set(self, item: int, state: ItemState, run: int | None = None) -> None:
        """Change the state of an item, and its run if one is given."""
        self.states[item] = state
        if run is not None:
            self.runs[item] = run
        self.changed_pages.add(item >> PAGE_BITS)

    def reopen(self, item: int) -> None:
        """Let an item wait for a task, before all others."""
        self.set(item, ItemState.OPEN)
        self._reopened.appendleft(item)

    def reopen_all(self) -> None:
        """Let all items wait that have not succeeded, in the job's own run."""
        for item, state in enumerate(self.states):
            if state != ItemState.SUCCEEDED and (state or self.runs[item]):
                self.set(item, ItemState.OPEN, 0)
        self._cursor = 1
        self._reopened.clear()

    def cancel_open(self) -> int:
        """Mark all items that wait as cancelled; return how many. The journal need not be notified:
        of a job that has finished, what is open was cancelled."""
        count = self.states.count(ItemState.OPEN, 1)
        self.states[1:] = self.states[1:].replace(
            bytes((ItemState.OPEN,)), bytes((ItemState.CANCELLED,))
        )
        self._reopened.clear()
        return count

    def next_open(self) -> int | None:
        """Return the item whose turn it is to get a task, None when no item waits. It must change
        its state before the next call."""
        while self._reopened:
            item = self._reopened.popleft()
            if self.states[item] == ItemState.OPEN:
                return item
        found = self.states.find(ItemState.OPEN, self._cursor)
        self._cursor = found if found > 0 else len(self.states)
        return found if found > 0 else None

    def in_state(self, state: ItemState) -> Iterator[int]:
        """Numbers of all items in a state, rising."""
        item = self.states.find(state, 1)
        while item > 0:
            yield item
            item = self.states.find(state, item + 1)

    def snapshot(self) -> "Items":
        """Return a copy of states and runs, for a thread."""
        found = Items(0)
        found.states, found.runs = self.states[:], self.runs[:]
        return found

    def page(self, number: int) -> bytes:
        """Return what the journal keeps of a page: a byte of state each, then four of run each,
        little-endian."""
        part = slice(number << PAGE_BITS, (number + 1) << PAGE_BITS)
        return bytes(self.states[part]) + _swapped(self.runs[part]).tobytes()

    def load_page(self, number: int, page: bytes) -> None:
        """Take in what the journal has kept of a page."""
        start, count = number << PAGE_BITS, len(page) // (1 + _RUN_BYTES)
        self.states[start : start + count] = page[:count]
        runs = array("I", page[count:])
        self.runs[start : start + count] = _swapped(runs)


def _swapped(runs: "array[int]") -> "array[int]":
    if _SWAP:
        runs.byteswap()
    return runs
