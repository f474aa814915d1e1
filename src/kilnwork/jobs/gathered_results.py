"""Gathered results: the results of all items of a job, as one JSON list for its finalizer.

Used by `effect_runner`. Results are stored with the tasks in the journal, large ones in blobs; they
are read in batches on the event loop. Then the list is built. A short list is built in memory and
passed to any executor as an input. A long list becomes a blob with the arguments of the finalizer,
which must then be a call.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.data import errors, local_blobs
from kilnwork.jobs import item_states, live_job_state, task_hub

READS = 256
"""Number of tasks looked up in one batch, which takes some milliseconds of the event loop."""

MAX_BYTES = 512 * 1024
"""Maximum size in bytes of a list that is passed as an input: it must fit into one frame of the
channel, next to the spec (`api.input_assembly`)."""

MAX_CALL_BYTES = 64 << 20
"""Maximum size in bytes of a list that is passed to a call. The manager holds it in memory for a
moment, except for results in blobs. The call reads it as one JSON document, which takes about five
times as much memory."""


class _Stored(NamedTuple):
    """Reference to a result that is a blob."""

    digest: bytes
    size: int


class FinalizerArguments(NamedTuple):
    """Encoded arguments of the function that a finalizer calls, in two pieces.

    The list of results is inserted between them.
    """

    head: bytes
    tail: bytes


class GatheredResults:
    """Gatherer of the results of a job's items.

    `around`: the arguments of the finalizer, None if it calls no function. `trouble`: the reason
    why the finalizer cannot get the results; "" if it can.
    """

    def __init__(
        self, job: live_job_state.Job, hub: task_hub.TaskHub, around: FinalizerArguments | None
    ) -> None:
        self._job, self._hub, self._around = job, hub, around
        self._next = 1
        self._found: list[bytes | _Stored] = []
        self._bytes = 2
        self.trouble = ""

    @property
    def in_memory(self) -> bytes | None:
        """The list of results in the order of the items, as JSON, with null for an item without a
        result. None if the list is longer than `MAX_BYTES`, or blobs have to be read.
        """
        if self._bytes > MAX_BYTES or any(isinstance(one, _Stored) for one in self._found):
            return None
        return b"[%b]" % b",".join(one for one in self._found if isinstance(one, bytes))

    def read_more(self) -> bool:
        """Read another batch of results. Return whether to continue: there are more results, and no
        trouble.
        """
        end = min(self._next + READS, self._job.size + 1)
        for item in range(self._next, end):
            found = self._find_result(item)
            self._found.append(found)
            self._bytes += 1 + (found.size if isinstance(found, _Stored) else len(found))
        self._next = end
        most = MAX_BYTES if self._around is None else MAX_CALL_BYTES
        if self._bytes > most:
            or_call = (
                f", or make it a call, which gets {MAX_CALL_BYTES}" if most < MAX_CALL_BYTES else ""
            )
            self.trouble = (
                f"the results of indexes up to {end - 2} take {self._bytes} bytes; its finalizer "
                f"gets at most {most}: have the indexes return less, such as the key of a file"
                f"{or_call}"
            )
        return not self.trouble and end <= self._job.size

    def build(self, kept: local_blobs.Blobs) -> bytes | attempts.Payload:
        """Return the list of results or, if it is too long for an input, the arguments of the
        finalizer including the list.

        Runs in a thread. Raises `BlobNotWritten`, `BlobMissing`, `BlobDamaged`.
        """
        around = self._around
        if around is None or self._bytes <= MAX_BYTES:
            return b"".join(self._pieces(kept))
        with kept.writer() as new:
            new.write(around.head)
            for piece in self._pieces(kept):
                new.write(piece)
            new.write(around.tail)
            digest, size = new.commit()
        return attempts.Payload(attempts.JSON, b"", digest, size)

    def _pieces(self, kept: local_blobs.Blobs) -> Iterator[bytes | memoryview]:
        mark = b"["
        for number, one in enumerate(self._found):
            yield mark
            mark = b","
            try:
                yield one if isinstance(one, bytes) else kept.get(one.digest)
            except (errors.BlobMissing, errors.BlobDamaged) as error:
                raise type(error)(f"the result of index {number}: {error}") from error
        yield b"]" if self._found else b"[]"

    def _find_result(self, item: int) -> bytes | _Stored:
        task = task_hub.task_id(self._job.id.uuid, item)
        for media_type, data, size, digest in self._hub.select("task_result", task):
            if media_type == attempts.JSON:
                return bytes(data or b"null") if digest is None else _Stored(bytes(digest), size)
            if media_type is not None:
                self.trouble = (
                    f"the result of index {item - 1} is {media_type}; a finalizer gets JSON: have "
                    "it return what JSON has, or the key of a file"
                )
            return b"null"
        if self._job.items.states[item] == item_states.ItemState.SUCCEEDED:
            self.trouble = (
                f"the result of index {item - 1} is in the journal no more, which keeps tasks for "
                "some days after their end: have it return the key of a file, or run it again"
            )
        return b"null"
