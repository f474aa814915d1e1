"""The memory that all parts of the machine share: its state, and the batch that is being gathered.

Used by `machine` and its parts, and by `journal.restore`. Has no rules of its own except that its
indexes stay consistent. Does no I/O and reads no clock.
"""

import heapq
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.machine import inputs, instructions, prune_pins, records, transition_table
from kilnwork.kit import ids

MAX_BACKLOG = 1_000_000
"""Number of queued tasks of a cluster above which submitted calls are not acknowledged, so that
submitters wait.
"""

RECENT_TEMPLATES = 4096
"""Number of templates that are remembered although no task uses them now: the next driver will."""

MIN_TIMERS_SWEPT = 10_000
"""Minimum number of deadlines at which void deadlines are removed. With fewer, it does not matter
how many are void.
"""

HISTORY_LENGTH = 100
"""Number of the latest inputs that the message of an `IllegalTransition` shows."""

HistoryEntry = tuple[float, type, Any]
"""Time (monotonic seconds), kind of input, and the input itself or a summary of it."""

Summary = tuple[Any, ...]

_NAMES = (
    "link", "serial", "ref", "parent", "session", "pod_uid", "reason", "child_key", "task", "slot",
    "code", "asked",
)  # fmt: skip
"""Names of the fields that say what an input is about, without any that a user may want to keep
secret.
"""


def _first(link: int, items: tuple[calls.CallItem, ...] | tuple[calls.Watched, ...]) -> Summary:
    return (link, len(items), items[0].task if items else b"")


def _ends(ends: tuple[calls.CallEnd, ...]) -> Summary:
    return (ends[0].ref, ends[0].ending) if ends else ()


_SUMMARIES: dict[type, Callable[[Any], Summary]] = {
    inputs.Submit: lambda item: (item.submission.task, item.submission.spec.run),
    inputs.SubmitNew: lambda item: (
        len(item.submissions), *(one.task for one in item.submissions[:3]),
    ),
    inputs.Rerun: lambda item: (item.task, item.run),
    inputs.RetryFailed: lambda item: (
        len(item.reruns), *(one.task for one in item.reruns[:3]),
    ),
    inputs.Spawn: lambda item: (item.link, item.serial, item.parent, item.child_key, item.task),
    inputs.Finished: lambda item: (
        item.link, item.serial, item.ref, item.outcome.ending, item.outcome.proof,
    ),
    inputs.Define: lambda item: (item.link, item.number),
    inputs.Undefine: lambda item: (item.link, len(item.numbers)),
    inputs.SubmitCalls: lambda item: _first(item.link, item.items),
    inputs.WatchTasks: lambda item: _first(item.link, item.items),
    inputs.CancelTasks: lambda item: (item.link, len(item.tasks), *item.tasks[:3]),
    inputs.CallsEnded: lambda item: (item.link, item.serial, len(item.ends), *_ends(item.ends)),
    inputs.CallsReturned: lambda item: (item.link, len(item.refs), *item.refs[:3]),
    inputs.Waiting: lambda item: (item.link, item.ref, len(item.tasks), item.in_place),
    inputs.Yielded: lambda item: (item.link, item.ref, item.index),
}  # fmt: skip
"""Summaries of inputs that may be large, by kind of input."""

_encode = msgspec.json.Encoder(order="sorted").encode


class SharedCall(NamedTuple):
    """The template and other values that calls with the same spec object share."""

    namespace: str
    spec: api_task.TaskSpec
    template: records.Template
    spec_bytes: int


class Timer(IntEnum):
    """The kinds of deadlines."""

    RETRY = 1
    PENDING = 2
    TOTAL = 3
    RUNNING = 4
    CONFIRM = 5
    LEASE = 6
    GRACE = 7
    CLAIM = 8
    RETURN = 9
    OPEN = 10
    SPARE = 11
    SILENT = 12


Target = records.Task | records.Worker | records.Slot


class Memory:
    """Tasks, workers and clusters by key, deadlines, and the batch that is being gathered."""

    def __init__(
        self,
        *,
        lease_s: float,
        entropy: ids.Entropy,
        task_row: int = 1,
        worker_row: int = 1,
        template_row: int = 1,
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        self.lease_s = lease_s
        self.longest_lease_s = lease_s
        """The longest lease that a worker may hold from an earlier dispatcher, in seconds."""
        self.entropy = entropy
        self.max_backlog = max_backlog
        """Number of queued tasks of a cluster above which submissions are not confirmed."""
        self.tasks: dict[ids.TaskId, records.Task] = {}
        self.keys: dict[tuple[str, str], records.Task] = {}
        self.workers: dict[bytes, records.Worker] = {}
        self.links: dict[int, records.Worker] = {}
        """Workers by link."""
        self.attempt_links: dict[int, attempts.AttemptRef] = {}
        """Attempts of executors, by the link of their sidecar or of the process that runs their
        call.
        """
        self.slots: dict[bytes, records.Slot] = {}
        self.slot_links: dict[int, records.Slot] = {}
        """Slots by link."""
        self.submitters: dict[int, records.Submitter] = {}
        """All submitters (drivers, slots and call processes) by link."""
        self.templates: weakref.WeakValueDictionary[tuple[str, bytes], records.Template] = (
            weakref.WeakValueDictionary()
        )
        self._shared_call: SharedCall | None = None
        # The other index is weak: a template lives as long as a task, a link or this deque refers
        # to it.
        self._recent_templates: deque[records.Template] = deque(maxlen=RECENT_TEMPLATES)
        self.clusters: dict[records.ClusterKey, records.Cluster] = {}
        self.starved: dict[records.Cluster, None] = {}
        """Clusters where something has changed, so that queued tasks may fit now."""
        self.waits_by_task: dict[ids.TaskId, list[records.Wait]] = {}
        """Waits in place, by each task that they would run."""
        self.waiting_slots: dict[records.Slot, None] = {}
        """Slots in which a wait in place may have a task that is ready."""
        self.ended: list[records.Task] = []
        """Final tasks whose dependents have not been notified yet."""
        self.delegating: dict[records.Task, calls.Value | None] = {}
        """Tasks that have just returned a future, with the journal's value for the future's
        task.
        """
        self.unconfirmed: dict[records.Submitter, records.Cluster] = {}
        """Submitters whose calls are not confirmed, because the queue of that cluster is long."""
        self.pins = prune_pins.Pins()
        self.closing = False
        self.batch = instructions.Batch()
        self.task_rows = count(task_row)
        self.worker_rows = count(worker_row)
        self.template_rows = count(template_row)
        self.history: deque[HistoryEntry] = deque(maxlen=HISTORY_LENGTH)
        self._timers: list[tuple[float, int, Timer, Target, int]] = []
        self._timer_numbers = count()
        self._sweep_timers_at = MIN_TIMERS_SWEPT

    def close(self) -> None:
        """Reserve no more attempts and excuse losses, since the server is stopping."""
        self.closing = True

    def cluster(self, namespace: str, name: str) -> records.Cluster:
        """Return the cluster of a TaskCluster or executor by its queue's name, made if new.

        An executor has one queue for all namespaces, unless it is external.
        """
        everywhere = api_task.is_executor_queue(name) and not api_task.is_external_queue(name)
        key = ("" if everywhere else namespace, name)
        cluster = self.clusters.get(key)
        if cluster is None:
            cluster = self.clusters[key] = records.Cluster(key)
            if not key[0]:
                everybody, required = api_task.queue_labels(name)
                if required:
                    self._restrict(cluster, self.cluster("", everybody), required)
            elif not cluster.is_executor and (named := api_task.queue_portion(name)) is not None:
                cluster.portion = named[1]
                self._restrict(cluster, self.cluster(namespace, named[0]), {})
        return cluster

    def _restrict(
        self, cluster: records.Cluster, base: records.Cluster, required: Mapping[str, str]
    ) -> None:
        cluster.base, cluster.required = base, required
        base.queues.extend((cluster,) if base.queues else (base, cluster))

    def template(self, namespace: str, spec: api_task.TaskSpec) -> records.Template:
        """Return the template of a spec in a namespace, made if new."""
        key = (namespace, _encode(spec))
        template = self.templates.get(key)
        if template is None:
            cluster = self.cluster(namespace, spec.queue_name)
            template = records.Template(next(self.template_rows), cluster, spec)
            self.templates[key] = template
            self._recent_templates.append(template)
            self.batch.templates.append(template)
        return template

    def restore_template(
        self, row: int, namespace: str, spec: api_task.TaskSpec
    ) -> records.Template:
        """Return the template of a spec, made with the row number that it has in the journal."""
        key = (namespace, _encode(spec))
        template = self.templates.get(key)
        if template is None:
            cluster = self.cluster(namespace, spec.queue_name)
            # The template's row exists, so it is not put into the batch.
            template = self.templates[key] = records.Template(row, cluster, spec)
        return template

    def prepare(self, task: records.Task) -> None:
        """Give a call that has a spec of its own a template and arguments; leave other tasks
        unchanged.
        """
        call = task.spec.call
        if call is None:
            return
        # The arguments of a Task object are in its spec; the rest is shared with other calls.
        if task.arguments is None:
            task.template = self.template(task.namespace, _shared(task.spec, call))
            task.arguments = attempts.Payload(attempts.JSON, _arguments(call, task.inputs))
        else:
            task.template = self.shared_call(task.namespace, task.spec).template
            task.spec = task.template.spec  # so that the task's row has no spec of its own

    def shared_call(self, namespace: str, spec: api_task.TaskSpec) -> SharedCall:
        """Return the template and other values that calls with this spec object share.

        Only the newest template is remembered, since such calls come one after the other.
        """
        known = self._shared_call
        if known is None or known.spec is not spec or known.namespace != namespace:
            call = spec.call or api_task.Call(function="")
            template = self.template(namespace, _shared(spec, call))
            known = self._shared_call = SharedCall(namespace, spec, template, len(_encode(spec)))
        return known

    def attempt_behind(self, link: int, ref: attempts.AttemptRef) -> records.Task | None:
        """Return the task whose newest attempt is `ref`, if that attempt itself is connected by
        `link`.
        """
        task = self.tasks.get(ref.task)
        if task is None or not task.held or self.attempt_links.get(link) != ref:
            return None
        return task if task.attempt == ref.attempt and task.run == ref.run else None

    def index_key(self, task: records.Task) -> None:
        """Index a task by the key that its driver gave it."""
        # A child has its key within its family, where `adopt` puts it.
        if task.child_key is not None and task.siblings is None:
            self.keys[task.namespace, task.child_key] = task

    def mark(self, task: records.Task) -> None:
        """Have the row of a task written with the current batch."""
        self.batch.dirty[task] = None

    def cache_result(self, task: records.Task) -> None:
        """Make the result of a successful task available for reuse."""
        if task.result is not None and task.finished is not None:
            entry = task.namespace, task.cache_key, task.id, task.finished
            self.batch.cached.append(entry)

    def send(self, instruction: instructions.Send) -> None:
        """Have an instruction carried out after the commit."""
        self.batch.sends.append(instruction)

    def touch(self, cluster: records.Cluster) -> None:
        """Mark the view of a cluster as changed; its waiting tasks may fit now."""
        self.batch.clusters.add(cluster)
        self.starve(cluster)

    def starve(self, cluster: records.Cluster) -> None:
        """Mark a cluster whose waiting tasks may fit its workers now, so that they are assigned."""
        if cluster.queues:  # several queues for the same workers, in the order of their turns
            # Only non-empty queues: there may be a queue for each set of labels.
            self.starved |= {queue: None for queue in cluster.queues if len(queue.queue)}
        self.starved[cluster] = None

    def move(self, task: records.Task, state: api_task.State) -> None:
        """Change the state of a task but not that of its attempt, or raise IllegalTransition."""
        if state not in transition_table.TASK_MOVES[task.state]:
            raise self._illegal(task, task.state, state)
        task.state = state
        self.batch.dirty[task] = None

    def move_attempt(
        self,
        task: records.Task,
        attempt_state: transition_table.AttemptState,
        *,
        state: api_task.State | None = None,
    ) -> None:
        """Change the state of a task's newest attempt, and the state of the task unless `state` is
        None.

        If either change is illegal, raise IllegalTransition and change neither.
        """
        if attempt_state not in transition_table.ATTEMPT_MOVES[task.attempt_state]:
            raise self._illegal(task, task.attempt_state, attempt_state)
        if state is not None:
            if state not in transition_table.TASK_MOVES[task.state]:
                raise self._illegal(task, task.state, state)
            task.state = state
        task.attempt_state = attempt_state
        self.batch.dirty[task] = None

    def _illegal(
        self, task: records.Task, before: str | None, after: str
    ) -> errors.IllegalTransition:
        attempt_text = f"task {ids.task_text(task.id)}/{task.run}/{task.attempt}"
        return errors.IllegalTransition(
            f"{attempt_text}: {before} → {after}\n{self.describe_history()}"
        )

    def remember(self, item: inputs.Input, now: inputs.Moment) -> None:
        """Add an input, without its payloads, to the history that an IllegalTransition shows."""
        kind = type(item)
        summary = _SUMMARIES.get(kind)
        self.history.append((now.mono, kind, item if summary is None else summary(item)))

    def describe_history(self) -> str:
        """Return the history of the last inputs, one line each, oldest first."""
        return "\n".join(
            f"{at:.3f} {kind.__name__} {_format_kept(kept)}" for at, kind, kept in self.history
        )

    def set_timer(self, due: float, kind: Timer, target: Target, *, attempt: int = 0) -> None:
        """Set a timer for `target` at `due` (monotonic seconds)."""
        # The number decides between equal times: targets cannot be compared.
        heapq.heappush(self._timers, (due, next(self._timer_numbers), kind, target, attempt))
        if len(self._timers) > self._sweep_timers_at:
            self._sweep_timers()

    def forget(self, task: records.Task) -> None:
        """Drop a task whose end is stored."""
        # A newer run of the task, or a newer task with the key, may have taken its place in the
        # indexes.
        if self.tasks.get(task.id) is task:
            del self.tasks[task.id]
        key = task.child_key
        if key is not None:
            siblings = task.siblings
            if siblings is None:
                if self.keys.get((task.namespace, key)) is task:
                    del self.keys[task.namespace, key]
            elif siblings.members.get(key) is task:
                del siblings.members[key]

    def _sweep_timers(self) -> None:
        """Drop timers of finished tasks, which would keep these in memory until they are due."""
        self._timers = [
            timer
            for timer in self._timers
            if not (isinstance(timer[3], records.Task) and timer[3].state.final)
        ]
        heapq.heapify(self._timers)
        # Twice the number that is left, so that sweeping costs a constant time per timer.
        self._sweep_timers_at = max(MIN_TIMERS_SWEPT, 2 * len(self._timers))

    def next_timer(self) -> float | None:
        """Return the monotonic time, in seconds, at which the next timer is due, or None."""
        return self._timers[0][0] if self._timers else None

    def pop_due_timer(self, mono: float) -> tuple[Timer, Target, int] | None:
        """Remove and return the next timer if it is due at `mono`, else return None."""
        if not self._timers or self._timers[0][0] > mono:
            return None
        _, _, kind, target, attempt = heapq.heappop(self._timers)
        return kind, target, attempt


def _shared(spec: api_task.TaskSpec, call: api_task.Call) -> api_task.TaskSpec:
    """Return the part of a call's spec that belongs to its template."""
    return msgspec.structs.replace(
        spec,
        call=msgspec.structs.replace(call, args=(), kwargs={}),
        run=1, kill_timestamp=None, suspend=False, ttl_seconds_after_finished=None,
        input_object=None, inputs=(), output_object=None,
    )  # fmt: skip


def _arguments(call: api_task.Call, given: bytes | None) -> bytes:
    """Return the JSON of `[args, kwargs]` of a call, with inputs as keyword arguments."""
    kwargs = dict(call.kwargs)
    if given:
        kwargs |= msgspec.json.decode(given, type=dict[str, msgspec.Raw])
    return msgspec.json.encode([call.args, kwargs])


def _format_kept(kept: Any) -> str:
    if isinstance(kept, tuple):
        return " ".join(map(_format_value, kept))
    named = ((name, getattr(kept, name, None)) for name in _NAMES)
    return " ".join(f"{name}={_format_value(value)}" for name, value in named if value is not None)


def _format_value(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
