"""Results of the tasks of a step: read when the step's job has ended, and stored with the run.

Used by `step_jobs`; the limits also by `testing.inline_flows`. Results are read in batches: results
that were noted when the tasks ended come from memory, the others from the journal. Results of
deterministic steps are stored for later generations.
"""

from collections.abc import Callable
from typing import cast

from kilnwork.api import attempts
from kilnwork.data import errors as data_errors
from kilnwork.jobs import item_states, live_job_state, task_hub
from kilnwork.jobs.flows import row_storage, step_inputs, step_item_source

_SUCCEEDED = item_states.ItemState.SUCCEEDED

READS = 256
"""Number of tasks looked up in one batch, which takes some milliseconds of the event loop."""

MAX_BYTES = step_item_source.MAX_RESULT_BYTES

TOO_LARGE = (
    f"its results take more than {MAX_BYTES} bytes together: have the shards return less, such as "
    "the key of a file"
)


class StepResults:
    """Reader of the results of one step's job. `keep` stores a result for later generations.

    `trouble` is the reason why the results cannot be used; "" if they can be. With a `trouble`, a
    step whose results other steps read fails.
    """

    def __init__(
        self,
        job: live_job_state.Job,
        hub: task_hub.TaskHub,
        *,
        kept: row_storage.FlowTables,
        keep: Callable[[bytes, bytes], None],
    ) -> None:
        source = cast(step_item_source.StepItems, job.source)
        self._work: step_inputs.StepWork = source.definition
        self._inputs, self._seen = source.inputs, source.seen
        self._uuid, self._states = job.id.uuid, job.items.states
        self._hub, self._tables, self._keep = hub, kept, keep
        self._namespace = job.namespace
        self._size, self._next, self._bytes = job.size, 0, 2
        self._found: list[bytes] = []
        self.trouble = ""

    @property
    def value(self) -> bytes:
        """The value of the step as JSON: the result of the only task, or the list of results in the
        order of the items.

        The list has null for an item without a result.
        """
        if self._work.variable:
            return b"[%b]" % b",".join(self._found)
        return self._found[0]

    def read_more(self) -> bool:
        """Read another batch of results. Return whether to continue: there are more results, and
        they are still needed."""
        end = min(self._next + READS, self._size)
        for number in range(self._next, end):
            found = self._find_result(number)
            if not self.trouble:
                self._found.append(found)
                self._bytes += len(found) + 1
                self._check()
        self._next = end
        return end < self._size and not (self.trouble and not self._work.memo)

    def _check(self) -> None:
        if self._bytes > MAX_BYTES:
            self._found.clear()
            self.trouble = TOO_LARGE

    def _find_result(self, number: int) -> bytes:
        if self._states[number + 1] != _SUCCEEDED:
            return b"null"
        seen = self._seen.knows(number)
        task = None if seen else task_hub.task_id(self._uuid, number + 1)
        payload = self._seen.get(number) if task is None else self._hub.result(task)
        key = self._inputs.memo_key(number) if self._work.memo else None
        if payload is None:
            kept = None if key is None else self._tables.find_memo(key)
            if kept is not None:
                return kept
            if task is not None and not self._hub.knows(task):
                self._note_trouble(
                    number, "is in the journal no more, which keeps tasks for some days"
                )
            return b"null"
        if payload.media_type != attempts.JSON:
            self._note_trouble(
                number, f"is {payload.media_type}, and other steps read JSON: no NaN, no own types"
            )
            return b"null"
        if payload.size > MAX_BYTES:
            what = f"has {payload.size} bytes, and other steps read at most {MAX_BYTES}"
            self._note_trouble(number, what)
            return b"null"
        data = payload.data if payload.digest is None else self._blob(number, payload.digest)
        if key is not None:
            self._keep(key, data)
        return data

    def _blob(self, number: int, digest: bytes) -> bytes:
        try:
            return self._tables.blob(self._namespace, digest)
        except data_errors.DataError as error:
            self._note_trouble(number, f"cannot be read: {error}")
            return b"null"

    def _note_trouble(self, number: int, what: str) -> None:
        which = f"the result of shard {number}" if self._work.variable else "its result"
        self.trouble = self.trouble or f"{which} {what}: have it return the key of a file"
