"""Seen results: results of the tasks of one step, kept from the moment when the tasks end.

At that time the results are in memory anyway. Used by `step_item_source` for steps whose results
are read. Results that are not kept, for example after a restart, are read from the journal by
`step_results`.
"""

from kilnwork.api import attempts


class SeenResults:
    """Results of a step's tasks by item number, from 0.

    `most`: maximum number of bytes kept; if there are more, all results are dropped.
    """

    def __init__(self, size: int, *, most: int) -> None:
        self._known = bytearray(size)
        self._payloads: dict[int, attempts.Payload] = {}
        """Results that are not None, by item number; most tasks return None."""
        self._room = most

    def note(self, number: int, payload: attempts.Payload | None) -> None:
        """Keep the result of a task; `payload` is None if the task returned nothing."""
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
        """Return whether the result of a task is kept, so that `get` may be called."""
        return bool(self._known[number])

    def get(self, number: int) -> attempts.Payload | None:
        """Return the result of a task, or None if the task returned nothing."""
        return self._payloads.get(number)
