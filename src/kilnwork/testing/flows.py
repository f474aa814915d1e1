"""Flows in the test's own process: the same plan, with functions called directly, one at a time.

`run_flow(flow, data={"trades": shards})` gives the view that a run would have at its end. Values
are JSON between steps, as elsewhere, so that results are the same. Time takes none: delays are not
waited for, timeouts do not count. Not for commands and other executors: steps are calls.
"""

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from kilnwork.api import (
    expressions,
    flow,
    flow_program,
    flow_validation,
    job_settings,
    reasons,
    worker_variables,
)
from kilnwork.api import task as api_task
from kilnwork.jobs import completion
from kilnwork.jobs import records as job_records
from kilnwork.jobs.flows import (
    model,
    plan,
    records,
    results,
    step_inputs,
    step_items,
    views,
)
from kilnwork.kit import errors, ids
from kilnwork.sdk import context, plain

_R = reasons.FlowReason
_UID = "00000000-0000-0000-0000-000000000000"
_LOCAL = "here"


class InvalidFlow(errors.KilnError):
    """The flow cannot run; the message has a line for each problem, with its path."""


Functions = Mapping[str, Callable[..., Any]]


def run_flow(
    declared: flow.Flow | Mapping[str, Any],
    *,
    data: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    functions: Functions | None = None,
) -> model.FlowRunView:
    """Run a flow to its end.

    `data`: the shards of each snapshot as a list of any JSON, or a `SnapshotRef`; `functions`: by
    the names under which steps call them, instead of what these would import. Raises InvalidFlow.
    """
    return run(declared, data=data, params=params, functions=functions).view


class Done(NamedTuple):
    """A flow that is over. `attempts`: names of the directories (`kiln.outputs()`) of attempts that
    have succeeded, by path of their step."""

    view: model.FlowRunView
    attempts: Mapping[str, list[str]]


def run(
    declared: flow.Flow | Mapping[str, Any],
    *,
    data: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None,
    functions: Functions | None,
) -> Done:
    """As `run_flow`, for `run_set`."""
    converted = _converted(declared)
    snapshots = {name: _snapshot(name, value) for name, value in (data or {}).items()}
    shards = {name: one.shards is not None for name, one in snapshots.items()}
    found = flow_validation.problems(converted, snapshots=shards)
    if found:
        raise InvalidFlow("\n".join(f"flow.{path}: {text}" for path, text in found))
    program, _ = flow_program.build(converted)
    groups = ["", *(node.step.group for node in program.every())]
    new = model.NewFlowRun(
        uid=_UID,
        namespace="default",
        set_name="flow",
        generation=1,
        flow=converted,
        params=dict(params or {}),
        snapshots=snapshots,
        clusters=dict.fromkeys(groups, _LOCAL),
        memo=False,
    )
    made = records.Run(new, records.RunState(started=0.0), row=1)
    process = _Process(made, functions or {})
    process.finish()
    return Done(views.of_run(made), process.attempts)


def _converted(declared: flow.Flow | Mapping[str, Any]) -> flow.Flow:
    if isinstance(declared, flow.Flow):
        return declared
    try:
        return msgspec.convert(declared, flow.Flow)
    except msgspec.ValidationError as error:
        raise InvalidFlow(f"flow: {error}") from error


def _snapshot(name: str, value: Any) -> model.SnapshotRef:
    if isinstance(value, model.SnapshotRef):
        return value
    return model.SnapshotRef(name=name, digest=f"sha256:{name}", shards=list(value))


class _Process:
    """Carries out what the plan wants."""

    def __init__(self, run: records.Run, functions: Functions) -> None:
        self._run, self._functions = run, functions
        self._queue: deque[records.Start] = deque()
        self.attempts: dict[str, list[str]] = {}
        self._called = 0

    def finish(self) -> None:
        """Go on until the run is over."""
        run = self._run
        while True:
            for instruction in plan.advance(run, now=0.0):
                if isinstance(instruction, records.Start):
                    self._queue.append(instruction)
                elif isinstance(instruction, records.Stop):
                    self._stop(instruction.key)
            if run.state.stage is records.Stage.OVER:
                return
            if self._queue:
                start = self._queue.popleft()
                plan.job_ended(run, start.key, self._done(start.key, start.work))

    def _stop(self, key: str) -> None:
        for start in [one for one in self._queue if one.key == key]:
            self._queue.remove(start)
            size = start.work.size
            counts = model.Counts(total=size, cancelled=size)
            plan.job_ended(self._run, key, records.JobEnd(False, _R.STOPPED, counts=counts))

    def _done(self, key: str, work: step_inputs.StepWork) -> records.JobEnd:
        """Call what a step calls, for each of its items."""
        inputs = step_inputs.Inputs(work)
        found: list[bytes] = []
        failed, first, cause, trouble = 0, "", "", ""
        for number in range(work.size):
            try:
                found.append(self._call(key, work, inputs.of(number)))
            except _NotJson as error:
                trouble = trouble or str(error)
                found.append(b"null")
            except Exception as error:  # noqa: BLE001 - whatever a task function raises
                failed += 1
                found.append(b"null")
                message = f"{type(error).__name__}: {error}"
                first = first or (f"shard {number}: {message}" if work.variable else message)
                cause = cause or _cause(error)
            if failed > work.max_failed:
                break
        counts = model.Counts(
            total=work.size,
            succeeded=len(found) - failed,
            failed=failed,
            cancelled=work.size - len(found),
        )
        if failed > work.max_failed:
            reason = step_items.StepItems.failed_reason if work.variable else cause
            return records.JobEnd(False, reason, _message(work, failed, first), cause, counts)
        value = b"[%b]" % b",".join(found) if work.variable else found[0]
        if work.wanted and len(value) > results.MAX_BYTES:
            trouble = trouble or results.TOO_LARGE
        if trouble and not work.needed:
            return records.JobEnd(True, "", "", cause, counts)
        if work.wanted and trouble:
            return records.JobEnd(False, _R.RESULT_TOO_LARGE, trouble, cause, counts)
        return records.JobEnd(True, "", "", cause, counts, value if work.wanted else None)

    def _call(self, key: str, work: step_inputs.StepWork, given: bytes) -> bytes:
        template = work.template
        if template.call is None:
            raise InvalidFlow(f"step {work.name} is no call: only those run in this process")
        function = self._function(template.call.function)
        args, kwargs = msgspec.json.decode(step_inputs.arguments_of(template, given))
        retry = work.retry or api_task.Retry()
        self._called += 1
        task = ids.TaskId(self._called.to_bytes(16))
        for attempt in range(1, retry.max_attempts + 1):
            context.begin(context.Context(task, run=1, attempt=attempt, name=work.name))
            try:
                value = function(*args, **kwargs)
            except Exception:
                if attempt == retry.max_attempts or retry.on:
                    raise
                continue
            finally:
                context.end()
            written = worker_variables.output_folder(ids.task_text(task), run=1, attempt=attempt)
            self.attempts.setdefault(records.step_path(key), []).append(written)
            data = plain.encode(value)
            if data is None or len(data) > results.MAX_BYTES:
                raise _NotJson(f"the result of {template.call.function} is no JSON, or too large")
            return data
        raise AssertionError("max_attempts is at least 1")

    def _function(self, name: str) -> Callable[..., Any]:
        if name in self._functions:
            return self._functions[name]
        module, _, attribute = name.partition(":")
        dotted = f"{module}.{attribute}"
        if dotted in self._functions:
            return self._functions[dotted]
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return cast(Callable[..., Any], found)


def _message(work: step_inputs.StepWork, failed: int, first: str) -> str:
    """Return what the engine says of a step of which too many tasks failed."""
    if work.size == 1:
        return first
    wanted = job_settings.Completion(max_failed=work.max_failed)
    ended = job_records.Counts()
    ended.failed = failed
    why = completion.message(wanted, ended, work.size, nouns=step_items.StepItems.nouns)
    return f"{why}: {first}"


class _NotJson(Exception):
    """A task has succeeded, and other steps cannot read what it returned."""


def _cause(error: Exception) -> str:
    unusable = isinstance(error, expressions.ExpressionError)
    return "TaskUnusable" if unusable else "Raised"
