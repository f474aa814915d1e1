"""The task state machine: inputs in, instructions out. No clock, no disk, no socket.

Used by the hub, which gives it inputs (`handle`) and carries out its instructions (`take`). The
decisions are in `task_starts` and `task_ends` (one task), `workers` and `slot_lifecycle` (where it
can run), `assignment` (where it runs), `child_spawning`, `submitters` and `submissions` (who
requests), `call_reports` and `waits` (reports of slots) and `dependencies`; legal moves are in the
table of `transition_table`. Only unfinished tasks are in memory, and finished ones until their end
is stored.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.machine import (
    assignment,
    call_reports,
    child_spawning,
    dependencies,
    families,
    in_process_executors,
    inputs,
    instructions,
    memory,
    records,
    requested_reruns,
    slot_lifecycle,
    submissions,
    submitters,
    task_ends,
    task_starts,
    waits,
    workers,
)
from kilnwork.kit import ids

_S = api_task.State
_R = reasons.Reason
_I = records.Intent
_OF_THE_RUN = frozenset({memory.Timer.PENDING, memory.Timer.TOTAL})


class Machine:
    """Makes all decisions of the dispatcher. Single-threaded; never blocks."""

    def __init__(self, mem: memory.Memory) -> None:
        self.memory = mem
        self._handlers: dict[type, Callable[[Any, inputs.Moment], None]] = {
            inputs.Submit: self._submit,
            inputs.SubmitNew: self._submit_new,
            inputs.Rerun: functools.partial(requested_reruns.rerun, mem),
            inputs.RetryFailed: functools.partial(requested_reruns.retry_failed, mem),
            inputs.Kill: self._kill,
            inputs.Suspend: self._suspend,
            inputs.Release: lambda item, _: self._release(item),
            inputs.Forget: lambda item, _: self._forget(item),
            inputs.Close: lambda *_: mem.close(),
            inputs.CloseCluster: self._close_cluster,
            inputs.Drain: lambda item, _: workers.drain(mem, item),
            inputs.SetPortions: lambda item, _: workers.set_portions(mem, item),
            inputs.Join: functools.partial(workers.join, mem),
            inputs.JoinExecutor: functools.partial(in_process_executors.join, mem),
            inputs.JoinAttempt: lambda item, _: in_process_executors.join_attempt(mem, item),
            inputs.JoinCall: functools.partial(in_process_executors.join_call, mem),
            inputs.AttemptObserved: lambda item, _: self._observed(item),
            inputs.LinkClosed: self._link_closed,
            inputs.WorkerGone: functools.partial(workers.worker_gone, mem),
            inputs.Renew: functools.partial(workers.renew, mem),
            inputs.Started: self._started,
            inputs.Finished: self._finished,
            inputs.Spawn: functools.partial(child_spawning.spawn, mem),
            inputs.AttemptProgress: self._progress,
            inputs.Attach: lambda item, _: submitters.attach(mem, item),
            inputs.Define: lambda item, _: submitters.define(mem, item),
            inputs.Undefine: lambda item, _: submitters.undefine(mem, item),
            inputs.SubmitCalls: functools.partial(submissions.submit, mem),
            inputs.WatchTasks: lambda item, _: submitters.watch(mem, item),
            inputs.CancelTasks: functools.partial(submitters.cancel, mem),
            inputs.SlotOpening: lambda item, _: None,
            inputs.SlotJoined: functools.partial(slot_lifecycle.join, mem),
            inputs.SlotGone: functools.partial(slot_lifecycle.process_ended, mem),
            inputs.CallsEnded: functools.partial(call_reports.handle_ends, mem),
            inputs.CallsReturned: functools.partial(call_reports.handle_returns, mem),
            inputs.Waiting: functools.partial(waits.begin, mem),
            inputs.Resumed: lambda item, _: waits.end(mem, item),
            inputs.Yielded: functools.partial(call_reports.forward_yield, mem),
            inputs.Tick: lambda _, now: self._tick(now),
            inputs.Stalled: lambda _, now: workers.renew_all(mem, now),
        }

    def handle(self, item: inputs.Input, now: inputs.Moment) -> None:
        """Apply an input.

        Raises `RunRefused` for a Submit, Rerun or RetryFailed that is refused, and `TaskTooLarge`
        for a Submit.
        """
        # First, so that an IllegalTransition that the handler raises shows this input too.
        self.memory.remember(item, now)
        self._handlers[type(item)](item, now)

    def take(self, now: inputs.Moment) -> instructions.Batch:
        """Assign waiting tasks to free slots; return the batch of all changes since the last
        call.
        """
        mem = self.memory
        # The order matters: ends may queue dependents; a wait in place takes its tasks before the
        # assignment gives them to others; the assignment shortens the queues for `confirm`.
        if mem.ended or mem.delegating:
            dependencies.settle(mem, now)
        if mem.waiting_slots:
            waits.serve(mem, now)
        if mem.starved:
            assignment.assign(mem, now)
        if mem.unconfirmed:
            submissions.confirm(mem)
        batch = mem.batch
        mem.batch = instructions.Batch()
        return batch

    def lookups(
        self,
        item: inputs.SubmitCalls | inputs.WatchTasks | inputs.CallsEnded,
        *,
        again: bool = False,
    ) -> inputs.Lookups | None:
        """Return the values to look up in the journal before the input is applied.

        Returns None if memory has all of them. `again`: the calls were sent before, and may have
        been accepted.
        """
        return submissions.lookups(self.memory, item, again=again)

    def forget(self, finals: Iterable[records.Task]) -> None:
        """Drop from memory the finished tasks whose ends are on disk."""
        for task in finals:
            self.memory.forget(task)

    def task(self, task: ids.TaskId) -> records.Task | None:
        """Return the record of a task, or None if the task is unknown, or final and on disk."""
        return self.memory.tasks.get(task)

    def next_deadline(self) -> float | None:
        """Return the monotonic time, in seconds, at which the next `Tick` is due, or None."""
        return self.memory.next_timer()

    def held_by(self, link: int, ref: attempts.AttemptRef) -> records.Task | None:
        """Return the task whose newest attempt is `ref`, if the peer behind `link` holds that
        attempt.

        The peer is its worker, its slot, or the attempt itself.
        """
        task = self.memory.tasks.get(ref.task)
        if task is None or not task.held or task.attempt != ref.attempt or task.run != ref.run:
            return None
        slot, worker = task.slot, task.worker
        if slot is not None and slot.link == link:
            return task
        if self.memory.attempt_links.get(link) == ref:
            return task
        return task if worker is not None and worker.link == link else None

    def holds_lease(self, link: int) -> bool:
        """Return whether the worker behind `link` holds a lease, which it may then renew."""
        return link in self.memory.links

    def may_have_child(self, parent: attempts.AttemptRef, child_key: str) -> bool:
        """Return whether the journal may have a child with that key that is not in memory."""
        task = self.memory.tasks.get(parent.task)
        if task is None or task.family is None or child_key in task.family.members:
            return False
        # Children without a key are numbered from 1 by each attempt, so a number above the count of
        # all children cannot have been used by an earlier one.
        ordinal = child_key.removeprefix("#")
        return ordinal == child_key or int(ordinal) <= task.family.total

    def refusal(self, submission: model.Submission) -> str:
        """Return the reason for which a run cannot be sent to a worker, or ""."""
        spec, arguments = submission.spec, submission.arguments
        if arguments is None:
            return task_starts.too_large(spec, submission.inputs)
        size = self.memory.shared_call(submission.namespace, spec).spec_bytes
        return task_starts.call_too_large(size, arguments)

    def _submit(self, item: inputs.Submit, now: inputs.Moment) -> None:
        submission = item.submission
        if refusal := self.refusal(submission):
            raise errors.TaskTooLarge(refusal)
        run = submission.spec.run
        current = self.memory.tasks.get(submission.task)
        past = item.past if current is None else inputs.Past(current.run, current.state)
        if past is not None:
            # Submitting is idempotent: callers submit their tasks again after each restart.
            if run <= past.run:
                return
            if current is not None and not current.state.final:
                # Not admitted yet: the old attempt may run until its end is proved. The caller
                # submits again when that is so.
                message = f"run {run} takes its place"
                task_ends.kill(self.memory, current, now, reason=_R.REPLACED, message=message)
                return
            if past.state is _S.SUCCESS and not item.force:
                raise errors.RunRefused(
                    f"run {past.run} of {submission.namespace}/{submission.name} succeeded; "
                    "running it again needs force"
                )
            self._keep(submission.task)
        self._submit_new(inputs.SubmitNew((submission,)), now)
        if item.earlier is not None:
            families.take_over(self.memory, self.memory.tasks[submission.task], item.earlier)

    def _keep(self, task: ids.TaskId) -> None:
        """Keep a task that gets a new run from being deleted by a prune.

        The prune would delete all rows of the task.
        """
        self.memory.pins.pin((task,))
        if self.memory.pins.is_retiring(task):
            self.memory.batch.forgotten.pop(task, None)

    def _submit_new(self, item: inputs.SubmitNew, now: inputs.Moment) -> None:
        mem, spec = self.memory, None
        for submission in item.submissions:
            # Compared by identity: the submissions of a set share one spec, and comparing specs is
            # slow.
            if submission.spec is not spec:
                spec = submission.spec
                cluster = mem.cluster(submission.namespace, spec.queue_name)
            task_starts.admit(
                mem, task_starts.new_run(next(mem.task_rows), submission, cluster), now
            )

    def _kill(self, item: inputs.Kill, now: inputs.Moment) -> None:
        task = self.memory.tasks.get(item.task)
        if task is not None:
            task_ends.kill(self.memory, task, now, reason=item.reason, message=item.message)

    def _suspend(self, item: inputs.Suspend, now: inputs.Moment) -> None:
        task = self.memory.tasks.get(item.task)
        if task is None or task.state.final or task.suspended == item.suspended:
            return
        if item.suspended:
            task_starts.suspend(self.memory, task)
        else:
            task_starts.resume(self.memory, task, now)

    def _release(self, item: inputs.Release) -> None:
        # A task in memory has a later run by now; its caller releases it after the end of that run.
        finished = [task for task in item.tasks if task not in self.memory.tasks]
        self.memory.batch.released += finished

    def _forget(self, item: inputs.Forget) -> None:
        """Have finished tasks deleted from the journal.

        A task whose end the current batch would write is deleted instead.
        """
        batch = self.memory.batch
        for name in item.tasks:
            task, row = self.memory.tasks.get(name), None
            if task is not None:
                # Otherwise the task is unfinished, its first row is in this batch, or its end is in
                # the batch that is being written.
                if not (task.stored and task.state.final and task in batch.dirty):
                    continue
                del batch.dirty[task]
                # With one run there is one row, which the store then need not look up.
                row = task.row if task.run == 1 else None
            batch.forgotten[name] = row

    def _close_cluster(self, item: inputs.CloseCluster, now: inputs.Moment) -> None:
        cluster = self.memory.clusters.get((item.namespace, item.cluster))
        message = f"there is no TaskCluster {item.cluster}"
        if not item.running:
            message = f"TaskCluster {item.cluster} is being deleted"
        for task in self._tasks_of(cluster):
            # Attempts on a worker may still succeed; a task that has delegated needs no worker.
            if not item.running and (task.held or task.delegate is not None):
                continue
            task_ends.stop(
                self.memory, task, now,
                intent=_I.CLUSTER, reason=_R.CLUSTER_DELETED, message=message,
            )  # fmt: skip

    def _tasks_of(self, cluster: records.Cluster | None) -> list[records.Task]:
        """Return the tasks that only workers of this cluster may run."""
        if cluster is None:
            return []
        own = {cluster, *cluster.queues}
        return [task for task in self.memory.tasks.values() if task.cluster in own]

    def _link_closed(self, item: inputs.LinkClosed, now: inputs.Moment) -> None:
        slot = self.memory.slot_links.get(item.link)
        if slot is not None:
            slot_lifecycle.link_closed(self.memory, slot, now)
        # Before the submitters: the process of a call in a Pod is in both maps, and leaves both
        # here.
        elif in_process_executors.leave_attempt(self.memory, item.link):
            return
        elif item.link in self.memory.submitters:
            submitters.detach(self.memory, item.link)
        else:
            workers.link_closed(self.memory, item)

    def _started(self, item: inputs.Started, now: inputs.Moment) -> None:
        task = self.held_by(item.link, item.ref)
        if task is not None:
            task_starts.start(self.memory, task, now, at=item.at)
        # A late report is acknowledged, too: its sender repeats it on each new link until then.
        if item.link in self.memory.slot_links:
            self.memory.batch.acknowledged[item.link] = item.serial
            if task is not None:
                self.memory.touch(task.cluster)  # tasks that are queued behind it may run elsewhere
        else:
            self.memory.send(instructions.Acknowledge(item.link, item.serial))

    def _finished(self, item: inputs.Finished, now: inputs.Moment) -> None:
        worker = self.memory.links.get(item.link)
        task = self.held_by(item.link, item.ref)
        if worker is not None and item.outcome.reason == _R.WORKER_STOPPING:
            # At once: until its link ends it would refuse any attempt that it is sent.
            worker.leaving = True
        if task is not None:
            outcome = in_process_executors.outcome(task, item.outcome)
            task_ends.conclude(self.memory, task, outcome, now, reported=True)
        # Not held any more: the attempt was abandoned, and a late report may prove that it is gone.
        elif worker is not None and item.outcome.proof:
            workers.prove(self.memory, worker, item.ref)
        self.memory.send(instructions.Acknowledge(item.link, item.serial))

    def _observed(self, item: inputs.AttemptObserved) -> None:
        task = self.held_by(item.link, item.ref)
        if task is not None:
            in_process_executors.observe(self.memory, task, item)

    def _progress(self, item: inputs.AttemptProgress, now: inputs.Moment) -> None:
        task = self.held_by(item.link, item.ref)
        if task is not None:
            task.progress = item.progress
            if task.declared:
                self.memory.batch.published.add(task.id)

    def _tick(self, now: inputs.Moment) -> None:
        while (timer := self.memory.pop_due_timer(now.mono)) is not None:
            # Timers are never cancelled: each handler checks whether its timer still matters.
            kind, target, attempt = timer
            if isinstance(target, records.Worker):
                self._worker_timer(kind, target, attempt, now)
            elif isinstance(target, records.Slot):
                slot_lifecycle.drop_overdue(self.memory, target, attempt)
            elif not target.state.final:
                self._task_timer(kind, target, attempt, now)

    def _worker_timer(
        self, kind: memory.Timer, worker: records.Worker, terms: int, now: inputs.Moment
    ) -> None:
        if kind is memory.Timer.LEASE:
            if terms == worker.terms:
                workers.lease_timer(self.memory, worker, now)
        elif kind is memory.Timer.CLAIM:
            if terms == worker.terms:
                workers.claim_timer(self.memory, worker, now)
        elif kind is memory.Timer.SPARE:
            assignment.end_spares(self.memory, worker)
        else:
            self.memory.touch(worker.cluster)

    def _task_timer(
        self, kind: memory.Timer, task: records.Task, attempt: int, now: inputs.Moment
    ) -> None:
        limits = task.spec.timeouts
        # These timers carry the count of resumptions, all others the number of their attempt.
        if kind in _OF_THE_RUN:
            if attempt == task.resumptions:
                self._deadline_of_run(kind, task, now)
        elif attempt != task.attempt:
            return
        elif kind is memory.Timer.RETRY:
            # It may be queued already: `task_starts.resume` uses the wall clock.
            if task.state is _S.PENDING and task.ticket is None:
                self._retry(task)
        elif kind is memory.Timer.SILENT:
            slot_lifecycle.check_silent_call(self.memory, task, now)
        elif kind is memory.Timer.RUNNING:
            message = f"attempt {attempt} ran longer than {limits.running_seconds:g} s"
            # The attempt may be over, with no later one reserved yet.
            if task.held:
                self._stop(task, now, _I.TIMEOUT, _R.TIMED_OUT, message)
        elif kind is memory.Timer.GRACE:
            if task.held and task.slot is not None and task.intent is not _I.NONE:
                assignment.kill(self.memory, task.slot)
        elif kind is memory.Timer.CONFIRM and task.held and task.intent is not _I.NONE:
            message = "it was not seen to end within its grace"
            unproven = attempts.Outcome(attempts.Ending.STOPPED, task.reason, message, proof=False)
            task_ends.conclude(self.memory, task, unproven, now)

    def _deadline_of_run(self, kind: memory.Timer, task: records.Task, now: inputs.Moment) -> None:
        # Time in suspension does not count, and `task_starts.resume` sets new timers.
        held_back = task.suspended and task.state is _S.PENDING
        if held_back:
            return
        if kind is memory.Timer.TOTAL:
            message = f"the run took longer than {task.spec.timeouts.total_seconds:g} s"
            self._stop(task, now, _I.TOTAL_TIMEOUT, _R.TOTAL_TIMED_OUT, message)
        elif task.started is not None:
            return
        elif task.state is _S.PENDING:
            task_ends.stop_pending(self.memory, task, now)
        # Only tasks that executors start, such as Pods, stay in this state for long. A call that
        # was sent ahead begins within moments.
        elif task.state is _S.STAGING and (task.cluster.is_executor or task.observed is not None):
            message = f"not started within {task.spec.timeouts.pending_seconds:g} s"
            if task.observed is not None:
                message += f": {task.observed.reason}: {task.observed.message}"
            self._stop(task, now, _I.PENDING_TIMEOUT, _R.PENDING_TIMED_OUT, message)

    def _retry(self, task: records.Task) -> None:
        task_starts.enqueue(self.memory, task)
        if task.declared:
            self.memory.batch.published.add(task.id)

    def _stop(
        self,
        task: records.Task,
        now: inputs.Moment,
        intent: records.Intent,
        reason: str,
        message: str,
    ) -> None:
        task_ends.stop(self.memory, task, now, intent=intent, reason=reason, message=message)
