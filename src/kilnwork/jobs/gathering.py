"""The results of all items of a job, as one JSON list for its finalizer.

Used by `effects`. Results are where the tasks are, in the journal; they are read some at a time.
"""

from kilnwork.api import attempts
from kilnwork.jobs import items, records, task_hub

READS = 256
"""Tasks that are looked up at once: some milliseconds of the loop."""

MAX_BYTES = 512 * 1024
"""Longest list: it must fit into one frame of the channel, next to the spec (`api.inputs`)."""


class Results:
    """What has been collected so far. `trouble`: why the finalizer cannot get it."""

    def __init__(self, job: records.Job, hub: task_hub.TaskHub) -> None:
        self._job, self._hub = job, hub
        self._next = 1
        self._found: list[bytes] = []
        self._bytes = 2
        self.trouble = ""

    @property
    def document(self) -> bytes:
        """The list, in the order of the items; null for one that has none."""
        return b"[%b]" % b",".join(self._found)

    def read_more(self) -> bool:
        """Look up some more; False: there are no more, or it makes no sense."""
        end = min(self._next + READS, self._job.size + 1)
        for item in range(self._next, end):
            found = self._result(item)
            self._found.append(found)
            self._bytes += len(found) + 1
        self._next = end
        if self._bytes > MAX_BYTES:
            self.trouble = (
                f"the results of indexes up to {end - 2} take {self._bytes} bytes; a finalizer "
                f"gets at most {MAX_BYTES}: have the indexes return less, such as the key of a file"
            )
        return not self.trouble and end <= self._job.size

    def _result(self, item: int) -> bytes:
        task = task_hub.task_id(self._job.id.uuid, item)
        for media_type, size, data in self._hub.select("task_result", task):
            if media_type == attempts.JSON and size is None:
                return bytes(data or b"null")
            if media_type is not None:
                what = f"{size} bytes" if size is not None else media_type
                self.trouble = (
                    f"the result of index {item - 1} is {what}; a finalizer gets JSON of at most "
                    f"{attempts.MAX_INLINE_BYTES} bytes of each: have it return the key of a file"
                )
            return b"null"
        if self._job.items.states[item] == items.State.SUCCEEDED:
            self.trouble = (
                f"the result of index {item - 1} is in the journal no more, which keeps tasks for "
                "some days after their end: have it return the key of a file, or run it again"
            )
        return b"null"
