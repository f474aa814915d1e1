"""The inline session, which runs its tasks in this process when their futures are waited for.

Used by tests of programs, through `inline()`. Tasks wait in a queue, by priority and then in order;
the thread that waits for a result runs them, one at a time, and a task that waits for another runs
it on top of its own stack. When nothing is ready, the time advances to the next retry or timeout.
Deterministic: the same program does the same things in the same order. For one thread at a time.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.data import local_blobs as blob_store
from kilnwork.kit import ids
from kilnwork.sdk import callbacks, errors, futures, session, streams
from kilnwork.testing import clock as clocks
from kilnwork.testing import inline_tasks
from kilnwork.testing import task_record as records


class InlineSession(session.Session):
    """A session that runs its tasks in this process.

    `clock`: its virtual clock.
    """

    in_slot = True
    functions_only = True
    has_secrets = False

    def __init__(self, directory: Path) -> None:
        # nothing of the base class is set up: there is no link
        self.namespace = self.cluster = "default"
        self.blobs = blob_store.Blobs(directory, durable=False)
        self.link: Any = _NoLink()
        self.clock = clocks.VirtualClock()
        self._ids = ids.TaskIds()
        self._specs: list[api_task.TaskSpec] = []
        self._held: dict[int, Any] = {}
        self._number = 0
        self._runs = inline_tasks.Runs(self.clock, self.blobs)

    @property
    def tasks(self) -> Sequence[records.Record]:
        """The records of all submitted tasks, in the order of submission."""
        return tuple(self._runs.known.values())

    def run(self) -> None:
        """Run all tasks that can run without advancing the time."""
        while self._runs.step():
            pass

    # methods that task functions and futures need

    def template(self, spec: api_task.TaskSpec) -> int:
        self._specs.append(spec)
        return len(self._specs)

    def remember(self, template: int, held: Any) -> None:
        self._held[template] = held

    def submit(  # noqa: PLR0913 - as its base
        self,
        template: int,
        *,
        function: str,
        arguments: attempts.Payload,
        needs: tuple[ids.TaskId, ...] = (),
        name: str | None = None,
        key: str | None = None,
        make: type[futures.CallFuture[Any]] = futures.CallFuture,
        cache: calls.Cache | None = None,
    ) -> futures.CallFuture[Any]:
        """Queue a call; it runs when its future is waited for, or in `run`."""
        self._runs.check()
        record = records.Record(
            task=self._ids.take(),
            spec=self._specs[template - 1],
            held=self._held[template],
            arguments=arguments,
            name=name,
            key=key,
            parent=self._runs.innermost,
        )
        try:
            known = self._runs.admit(record, needs)
        except errors.KeyTaken as error:
            return self._refused(record, str(error), make)
        return self._attached(known, make)

    def future(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        record = self._runs.known.get(task_id)
        if record is not None:
            return self._attached(record, futures.CallFuture)
        future: futures.CallFuture[Any] = futures.CallFuture(self, self._next_number(), task_id)
        future.settle(calls.CallResult(0, api_task.State.PENDING, "", ""))
        return future

    def cancel(self, tasks: Iterable[ids.TaskId], *, recursive: bool = True) -> None:
        for each in tasks:
            record = self._runs.known.get(each)
            if record is not None:
                self._runs.kill(record, reasons.Reason.KILLED, recursive=recursive)

    def retry(
        self, task_id: ids.TaskId, *, failed: bool, force: bool = False, started: bool = False
    ) -> futures.CallFuture[Any]:
        raise errors.ConfigurationError(
            "tasks that run in the process of a test do not run again: retry() needs kiln.start()"
        )

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool:
        return self._runs.until(done, timeout_s)

    def suspended(self, tasks: Sequence[ids.TaskId]) -> None:
        waited = [self._runs.known[each] for each in tasks if each in self._runs.known]
        before = [len(each.yielded) for each in waited]

        def stirred() -> bool:
            now = [len(each.yielded) for each in waited]
            return now != before or any(each.final for each in waited)

        if waited:
            self._runs.until(stirred, None)

    def call_back(self, callback: Callable[[Any], object], future: Any) -> None:
        """Call the callback of a future at once, because there is only one thread."""
        callbacks.call(callback, future)

    def confirm(self, number: int) -> None:
        """Do nothing, because every id is known in an inline session."""

    def all_accepted(self) -> bool:
        return True

    def close(self) -> None:
        """Close the session: the futures of tasks that have not run fail with NoSession."""
        session.deactivate(self)
        self._runs.abandon(errors.NoSession("the inline session is over, and with it its tasks"))

    # private

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _attached(
        self, record: records.Record, make: type[futures.CallFuture[Any]]
    ) -> futures.CallFuture[Any]:
        number = self._next_number()
        future = make(self, number, record.task)
        if isinstance(future, streams.Stream):
            for index, payload in enumerate(record.yielded):
                future.yielded(index, payload)
        if record.final:
            future.settle(record.result(number))
        else:
            record.futures[number] = future
        return future

    def _refused(
        self, record: records.Record, message: str, make: type[futures.CallFuture[Any]]
    ) -> futures.CallFuture[Any]:
        record.state, record.reason = api_task.State.FAILED, reasons.Reason.KEY_TAKEN
        record.message = message
        return self._attached(record, make)


@contextmanager
def inline() -> Iterator[InlineSession]:
    """Open an inline session for a block: `with kiln.testing.inline() as session:`.

    `session.clock` is its virtual clock, `session.tasks` are the submitted tasks.
    """
    with tempfile.TemporaryDirectory(prefix="kiln-inline-") as directory:
        opened = InlineSession(Path(directory))
        session.activate(opened)
        try:
            with clocks.patched(opened._runs.sleep, applies=opened._runs.runs_here):
                yield opened
        finally:
            opened.close()


class _NoLink:
    """A link without a connection, which futures of an inline session use."""

    def flush(self) -> None:
        """Do nothing, because no message is held back."""

    def wake(self) -> None:
        """Do nothing, because no thread sleeps."""
