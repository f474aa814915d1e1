"""Results of the tasks of one step, noted as the tasks end: while they are in memory anyway.

Used by `step_items`, for steps whose results are read. What is not here, as after a restart,
`results` reads from the journal.
"""

from kilnwork.api import attempts


class SeenResults:
    """By number of the item, from 0. `most`: bytes that are kept; with more, all are dropped."""

    def __init__(self, size: int, *, most: int) -> None:
        self._known = bytearray(size)
        self._payloads: dict[int, attempts.Payload] = {}
        """Without those that are None: of many tasks, those of most."""
        self._room = most

    def note(self, number: int, payload: attempts.Payload | None) -> None:
        """Keep what a task has returned; None: nothing."""
        if self._room < 0:
            return
        self._known[number] = 1
        if payload is not None:
            self._payloads[number] = payload
            self._room -= len(payload.data)
            if self._room < 0:
                self._known = bytearray(len(self._known))
                self._payloads.clear()

    def knows(self, number: int) -> bool:
        """Return whether a task has ended, and `get` says what it has returned."""
        return bool(self._known[number])

    def get(self, number: int) -> attempts.Payload | None:
        """Return what a task has returned that is known."""
        return self._payloads.get(number)
