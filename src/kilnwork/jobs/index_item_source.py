"""Index items: the index set of a Job as items of the engine. Item n is index n - 1; item 0 is the
finalizer.

Used by `index_job_service`, which passes `IndexSources` to the engine, and by `job_index_listing`
and `flows`. An index ends when its task ends; its result stays with the task in the journal. The
meaning of a template is defined in `api.resolved_job_settings` and `api.job_task_rendering`; when
the job starts is decided by `job_start_queue`.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from kilnwork.api import (
    attempts,
    filejobs,
    job_indexes,
    job_task_rendering,
    job_variables,
    json_limits,
    resolved_job_settings,
    substitution,
)
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import (
    completion,
    errors,
    gathered_results,
    item_source,
    item_states,
    live_job_state,
    plan_steps,
    rows,
)

KIND = "index"

WINDOW = 1024
"""Default number of indexes of a Job that have a task at once: a slot may have hundreds of short
calls waiting."""

MAX_IN_FLIGHT = 10_000
"""Maximum number of indexes of a Job that have a task at once, whatever its spec says: after a
crash they are looked up one by one, and they are submitted in one transaction."""

RESULTS = job_variables.RESULTS_INPUT

_RUN, _PHASE = "job.run", "job.phase"

MAX_NEWEST = 20
"""Number of indexes that a view shows."""

_P = api_job.Phase
_S = item_states.ItemState
_O = filejobs.PartOutcome
AT_WORK = frozenset({api_task.State.RUNNING, api_task.State.KILLING})
"""States in which a process of the task may be running."""

_FINAL = {_O.SUCCEEDED: _P.SUCCEEDED, _O.FAILED: _P.FAILED, _O.CANCELLED: _P.KILLED}


class IndexSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Settings of a Job, or of a step of a flow (`item_source.Policy`). Parallelism, priority and
    suspension may change while it exists."""

    name: str
    cluster_name: str = "default"
    parallelism: int | None = None
    max_crashes: int = 0
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    priority: int = 0
    group: str = ""
    """`metadata.uid` of the Job's JobConfig; "" for none."""
    finalizer: bool = False


class IndexDefinition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Definition of a Job's indexes, which is written once; later only `provide` adds to it."""

    name: str
    template: api_job.JobTemplate
    variables: dict[str, Any] = {}
    inputs: dict[str, Any] | None = None
    """Inputs of every index, by name."""
    items: list[Any] | None = None
    """With `withResultOf`, the list that a task returned; None until then."""

    @property
    def known(self) -> bool:
        """Whether the index set is known."""
        parallelism = self.template.parallelism
        return parallelism is None or parallelism.with_result_of is None or self.items is not None


class IndexProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The progress of a Job beyond the outcomes of its indexes: counts of tasks and attempts, and
    which indexes failed.
    """

    created: int = 0
    """Number of tasks of indexes that have ended, in all runs."""
    retries: int = 0
    """Number of attempts of these tasks after the first of each task."""
    unconfirmed: int = 0
    """Number of tasks of this run that have ended, but may still have running processes."""
    failed_indexes: str = ""
    """Ranges of the indexes that failed; set when the job ends."""


class IndexDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Details in the view of a Job, in addition to its counts."""

    phase: api_job.Phase
    admitted: float | None
    failed_indexes: str
    shown: tuple[int, ...]
    """At most `MAX_NEWEST` items: all items, or the failed items followed by running items."""
    running: int
    created: int
    retries: int
    stopped: bool | None


_beside_call = operator.attrgetter(
    *(name for name in api_task.TaskTemplate.__struct_fields__ if name != "call")
)
_beside_arguments = operator.attrgetter(
    *(name for name in api_task.Call.__struct_fields__ if name not in ("args", "kwargs"))
)
_encode = msgspec.json.Encoder().encode
_decode_definition = msgspec.json.Decoder(IndexDefinition).decode
_decode_spec = msgspec.json.Decoder(IndexSpec).decode
_decode_progress = msgspec.json.Decoder(IndexProgress).decode


class IndexSources:
    """Factory of the item sources of Jobs (`rows.SourceKind`)."""

    nouns = "indexes"
    ttl_s: float | None = None
    """None: Jobs are kept as long as their objects."""

    def spec(self, encoded: bytes) -> IndexSpec:
        """Decode the spec of a Job, which has the settings that may change."""
        return _decode_spec(encoded)

    def progress(self, encoded: bytes) -> IndexProgress:
        """Decode the progress of a Job."""
        return _decode_progress(encoded)

    def detail(self, row: rows.JobRow) -> IndexDetail:
        """Return the view detail of a Job that is not in memory."""
        progress = _decode_progress(row.progress)
        phase = _P.STARTING if row.started is None else _P.PENDING
        if row.verdict is not None and row.finished is not None:
            phase = _P.ADMISSION_ERROR if row.turn == rows.REFUSED else _FINAL[_O(row.verdict)]
        elif row.turn == rows.WAITS:
            phase = _P.QUEUED
        over = row.finished is not None
        return IndexDetail(
            phase=phase,
            admitted=row.admitted,
            failed_indexes=progress.failed_indexes,
            shown=_limit_shown(row.items, _items_of_ranges(progress.failed_indexes)),
            running=0,
            created=progress.created,
            retries=progress.retries,
            stopped=progress.unconfirmed == 0 if over else None,
        )

    def load(self, spec: item_source.Policy, *, definition: bytes, progress: bytes) -> "IndexItems":
        """Return the item source of a Job, given the encoded columns of its rows in the journal."""
        return IndexItems(_decode_definition(definition), _decode_progress(progress))

    def new(self, definition: IndexDefinition) -> "IndexItems":
        """Return the item source of a new Job. Raises `InvalidJob`."""
        try:
            found = IndexItems(definition, IndexProgress())
            found.check()
        except (ValueError, substitution.InvalidTemplate, json_limits.LimitExceeded) as error:
            raise errors.InvalidJob(f"spec.template: {error}") from error
        return found


class _Shared(NamedTuple):
    """Work of the newest index whose task calls a function.

    The next indexes reuse its spec object if they differ only in the arguments of the call.
    """

    run: int
    priority: int
    what: api_task.TaskTemplate
    """Template from which the work was made."""
    work: item_source.Work


class IndexItems:
    """The indexes of one Job as the items of a job (`item_source.ItemSource`)."""

    kind, blobs = KIND, b""
    noun, nouns, first = "index", "indexes", 0
    ends_with_task = True
    window, shown_tasks = WINDOW, MAX_NEWEST
    failed_reason, finalizer_reason = "IndexesFailed", "FinalizerFailed"

    def __init__(self, definition: IndexDefinition, progress: IndexProgress) -> None:
        self.definition, self.progress = definition, progress
        self.indexes: job_indexes.IndexSet | None = None
        """None until the index set is known."""
        if definition.known:
            parallelism = definition.template.parallelism
            self.indexes = job_indexes.IndexSet(parallelism, definition.items)
        self.size = 0 if self.indexes is None else self.indexes.size
        self.settings = resolved_job_settings.JobSettings.of(definition.template, self.size)
        self.completion: resolved_job_settings.Completion | None = self.settings.completion
        self.finalizer = self.keeps_tasks = self.settings.finalizer is not None
        self.results: bytes | attempts.Payload | None = None
        self._ranged = (0, "")
        self._rendering: tuple[int, job_task_rendering.Template] | None = None
        """Run number, and the template of indexes with the variables of that run."""
        self._shared: _Shared | None = None
        self._inputs = None if definition.inputs is None else _encode(definition.inputs)

    def check(self) -> None:
        """Check that all templates can be rendered. Raises InvalidTemplate, LimitExceeded."""
        self._template(1)
        if self.finalizer:
            self._finalizer(1)
        for number, hook in enumerate(self.settings.hooks):
            for event in hook.events:
                self._hook(number, event, 1)

    def begin_run(self) -> None:
        """Reset everything that is kept per run: gathered results, unconfirmed tasks, failed
        indexes."""
        self.results = None
        self.progress = msgspec.structs.replace(self.progress, unconfirmed=0, failed_indexes="")

    def work(self, job: live_job_state.Job, item: int) -> item_source.Work:
        """Return the work of an index, or of the finalizer. Raises `ItemUnusable`."""
        try:
            what = self._index(item, job.run) if item else self._finalizer(job.run)
        except (substitution.InvalidTemplate, json_limits.LimitExceeded) as error:
            raise errors.ItemUnusable(str(error)) from error
        if not item:
            gathered = self.results
            if isinstance(gathered, attempts.Payload):
                return item_source.Work(
                    _task_spec(_without_arguments(what), run=job.run), None, gathered
                )
            given = b'{"%b":%b}' % (RESULTS.encode(), gathered or b"[]")
            return item_source.Work(_task_spec(what, run=job.run), given)
        call, run, known = what.call, job.run_of(item), self._shared
        if call is None:
            return item_source.Work(self._spec(job, what, run), self._inputs)
        priority = cast(IndexSpec, job.spec).priority
        if known is not None and (known.run != run or known.priority != priority):
            known = None
        if known is not None and known.what is what:
            return known.work
        if known is not None and _differ_in_arguments(known.what, what):
            spec = known.work.spec
        else:
            spec = self._spec(job, _without_arguments(what), run)
        kwargs = {**call.kwargs, **(self.definition.inputs or {})}
        arguments = attempts.Payload(attempts.JSON, _encode((call.args, kwargs)))
        work = item_source.Work(spec, None, arguments)
        self._shared = _Shared(run, priority, what, work)
        return work

    def _spec(
        self, job: live_job_state.Job, what: api_task.TaskTemplate, run: int
    ) -> api_task.TaskSpec:
        settings, spec = self.settings, cast(IndexSpec, job.spec)
        return _task_spec(
            what,
            priority=spec.priority,
            retry=settings.retry,
            timeouts=settings.timeouts,
            run=run,
        )

    def task_name(self, job: live_job_state.Job, item: int) -> str:
        """Return the Job's name with the number of the index."""
        return task_name(self.definition.name, item)

    def hook_tasks(
        self, job: live_job_state.Job, event: api_job.HookEvent
    ) -> list[item_source.ExtraTask]:
        """Return the hook tasks for a change of the phase. Their keys differ per run."""
        found = []
        for number, hook in enumerate(self.settings.hooks):
            if event not in hook.events:
                continue
            key = f"hook/{job.run}/{number}/{event.value}"
            name = self._hook_name(number, event)
            spec = _task_spec(self._hook(number, event, job.run))
            found.append(item_source.ExtraTask(key, name, spec))
        return found

    def finalizer_arguments(self, run: int) -> gathered_results.FinalizerArguments | None:
        """Return the arguments of the finalizer's call, without the results.

        None if the finalizer does not call a function, or cannot be rendered.
        """
        try:
            call = self._finalizer(run).call
        except (substitution.InvalidTemplate, json_limits.LimitExceeded):
            return None  # its task cannot be made, and `work` says why
        if call is None:
            return None
        given = b"".join(b"%b:%b," % (_encode(k), _encode(v)) for k, v in call.kwargs.items())
        head = b'[%b,{%b"%b":' % (_encode(call.args), given, RESULTS.encode())
        return gathered_results.FinalizerArguments(head, b"}]")

    def _variables(self, run: int, name: str | None = None) -> dict[str, Any]:
        """Return the template variables of a run, with the name of the task if it is given."""
        found = dict(self.definition.variables)
        if isinstance(found.get(_RUN), int):  # values of `substitutions` are strings
            found[_RUN] = run
        return found if name is None else {job_variables.TASK_NAME: name, **found}

    def _template(self, run: int) -> job_task_rendering.Template:
        if self._rendering is None or self._rendering[0] != run:
            parallelism = self.definition.template.parallelism
            template = job_task_rendering.Template.of(
                self.settings.index_task,
                self._variables(run),
                later={job_variables.TASK_NAME, *job_variables.of_index(parallelism)},
            )
            self._rendering = (run, template)
        return self._rendering[1]

    def _index(self, item: int, run: int) -> api_task.TaskTemplate:
        template, indexes = self._template(run), self.indexes
        if indexes is None:
            raise errors.ItemUnusable("its list of indexes is not known")
        if not template.changes:
            return template.render({})
        name = self.definition.name
        return template.render(job_task_rendering.index_variables(indexes, name, item - 1))

    def _finalizer(self, run: int) -> api_task.TaskTemplate:
        what = self.settings.finalizer
        if what is None:
            raise errors.ItemUnusable("it has no finalizer")
        variables = self._variables(run, task_name(self.definition.name, 0))
        field, given = "spec.template.finalizer.taskTemplate", (RESULTS,)
        found = job_task_rendering.Template.of(what, variables, field=field, given_inputs=given)
        return found.render({})

    def _hook(self, number: int, event: api_job.HookEvent, run: int) -> api_task.TaskTemplate:
        what = self.settings.hooks[number].task_template
        variables = self._variables(run, self._hook_name(number, event))
        variables[_PHASE] = event.value
        field = f"spec.template.hooks[{number}].taskTemplate"
        return job_task_rendering.Template.of(what, variables, field=field).render({})

    def _hook_name(self, number: int, event: api_job.HookEvent) -> str:
        return f"{self.definition.name}-hook-{number}-{event.value.lower()}"

    def label(self, item: int) -> str:
        """Return the label of an index for users."""
        return "" if self.indexes is None else self.indexes.label(item - 1)

    def failure(self, job: live_job_state.Job) -> tuple[str, str] | None:
        """Return None, since `completion` decides whether the job can still succeed."""
        return None

    def failure_text(self, result: item_source.ItemResult) -> str:
        """Return the reason why an index failed, with the label of the index if there are
        several.
        """
        return f"index {result.item - 1}: {result.message}" if self.size > 1 else result.message

    def count_result(self, result: item_source.ItemResult) -> None:
        """Count the task of an index that has ended."""
        if not result.item:
            return
        task: live_job_state.ItemTask = result.data
        known, ended = self.progress, task.ended
        self.progress = IndexProgress(
            created=known.created + 1,
            retries=known.retries + max(task.attempt - 1, 0),
            unconfirmed=known.unconfirmed + (ended is not None and ended.stopped is False),
        )

    def detail(self, job: live_job_state.Job) -> IndexDetail:
        """Return the view detail of a job in memory."""
        over = job.stage is live_job_state.FINISHED
        known, tasks = self.progress, job.tasks
        running = [n for n, task in tasks.items() if n and task.state in AT_WORK]
        lost = job.items.in_state(_S.FAILED)
        return IndexDetail(
            phase=_phase(job, len(running)),
            admitted=job.admitted,
            failed_indexes=known.failed_indexes if over else self._failed_ranges_so_far(job),
            shown=_limit_shown(self.size, itertools.chain(lost, running)),
            running=len(running),
            created=known.created + len(tasks) - (0 in tasks),
            retries=known.retries + sum(max(task.attempt - 1, 0) for task in tasks.values()),
            stopped=known.unconfirmed == 0 if over else None,
        )

    def record_end(self, job: live_job_state.Job) -> None:
        """Store in the progress which indexes failed."""
        self.progress = msgspec.structs.replace(self.progress, failed_indexes=_failed_ranges(job))

    def _failed_ranges_so_far(self, job: live_job_state.Job) -> str:
        """Return the ranges of failed indexes, of which up to a hundredth, the newest, may be
        missing.

        With very many failed indexes computing the ranges takes milliseconds.
        """
        count, text = self._ranged
        if not count <= job.counts.failed <= count * 1.01:
            text = _failed_ranges(job)
            self._ranged = (job.counts.failed, text)
        return text

    def prepare(self, job: live_job_state.Job, inline: bytes | None) -> Callable[[], None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def recover(self, job: live_job_state.Job) -> Callable[[], list[item_source.ItemResult]]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def settle(
        self, job: live_job_state.Job, step: plan_steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], item_source.ItemResult | item_source.Damage | None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def purge(self, job: live_job_state.Job) -> Callable[[], None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError


def _differ_in_arguments(one: api_task.TaskTemplate, other: api_task.TaskTemplate) -> bool:
    """Return whether two calls are equal except for their arguments."""
    return bool(_beside_call(one) == _beside_call(other)) and bool(
        _beside_arguments(one.call) == _beside_arguments(other.call)
    )


def task_name(job: str, item: int) -> str:
    """Return the name of the task of an item of a Job, given the Job's name."""
    return job_indexes.task_name(job, item - 1) if item else f"{job}-finalizer"


def _limit_shown(size: int, found: Iterable[int]) -> tuple[int, ...]:
    chosen = range(1, size + 1) if size <= MAX_NEWEST else found
    return tuple(itertools.islice(chosen, MAX_NEWEST))


def _failed_ranges(job: live_job_state.Job) -> str:
    return job_indexes.ranges(item - 1 for item in job.items.in_state(_S.FAILED))


def _without_arguments(what: api_task.TaskTemplate) -> api_task.TaskTemplate:
    """Return a template of a call without the arguments."""
    call = cast(api_task.Call, what.call)
    return msgspec.structs.replace(what, call=msgspec.structs.replace(call, args=(), kwargs={}))


def _task_spec(what: api_task.TaskTemplate, **more: Any) -> api_task.TaskSpec:
    given = {name: getattr(what, name) for name in api_task.TaskTemplate.__struct_fields__}
    return api_task.TaskSpec(**given, **more)


def _phase(job: live_job_state.Job, running: int) -> api_job.Phase:
    """Return the phase of a job in memory."""
    if job.stage is live_job_state.FINISHED:
        return _P.ADMISSION_ERROR if job.refused else _FINAL[job.verdict or _O.SUCCEEDED]
    if job.stage is live_job_state.STOPPING:
        return _P.KILLING if job.verdict is _O.CANCELLED else _P.TERMINATING
    if job.waits:
        return _P.QUEUED
    if job.stage is live_job_state.FINALIZING:
        return _P.RUNNING
    wanted = job.source.completion
    if wanted is not None and completion.decide(wanted, job.counts, job.size):
        return _P.TERMINATING
    if running:
        return _P.RUNNING
    if job.started is None:
        return _P.PENDING if job.tasks else _P.STARTING
    again = [task for task in job.tasks.values() if task.failures or task.losses]
    if not again:
        return _P.PENDING
    waits = all(task.state is api_task.State.PENDING for task in again)
    return _P.RETRY_BACKOFF if waits else _P.RETRYING


def _items_of_ranges(text: str) -> Iterator[int]:
    """Yield the items of the index ranges in a text, which may end with a count of omitted
    ranges.
    """
    for part in text.split(",") if text else ():
        if not part[0].isdigit():
            return  # the count of omitted ranges
        first, _, last = part.partition("-")
        yield from range(int(first) + 1, int(last or first) + 2)
