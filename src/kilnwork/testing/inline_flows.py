"""Flows run in the test's own process: planned like real runs, but functions are called directly,
one at a time.

`run_flow(flow, data={"trades": shards})` returns the view that a real run would have at its end.
Values between steps are JSON, as in real runs, so that results are the same. Time is virtual:
`time.sleep` and delays of retries return at once, and count for the time limits of attempts, steps
and flow. Not for commands and other executors: steps must be calls.
"""

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from kilnwork.api import (
    flow,
    flow_expressions,
    flow_program,
    flow_validation,
    reasons,
    resolved_job_settings,
    sync_set_env,
)
from kilnwork.api import task as api_task
from kilnwork.jobs import completion
from kilnwork.jobs import live_job_state as job_records
from kilnwork.jobs.flows import (
    live_run_state,
    run_planning,
    run_types,
    step_inputs,
    step_item_source,
    step_results,
    views,
)
from kilnwork.kit import errors, ids
from kilnwork.sdk import context, exact_json
from kilnwork.testing import clock, flow_timeline

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
) -> run_types.FlowRunView:
    """Run a flow to its end in this process, and return its view.

    `data`: by name of a snapshot, a list of its shards, each any JSON value, or a `SnapshotRef`.
    `params`: values that override those in the flow's `params`. `functions`: functions to call, by
    the name that the steps use; other functions are imported. Raises InvalidFlow.
    """
    return run(declared, data=data, params=params, functions=functions).view


class Done(NamedTuple):
    """The result of a finished flow.

    `attempts`: names of the directories (`kiln.outputs()`) of attempts that have succeeded, by the
    path of their step.
    """

    view: run_types.FlowRunView
    attempts: Mapping[str, list[str]]


def run(
    declared: flow.Flow | Mapping[str, Any],
    *,
    data: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None,
    functions: Functions | None,
) -> Done:
    """Run a flow as `run_flow` does, and also return the output directories of its successful
    attempts; for `run_set`.
    """
    converted = _converted(declared)
    snapshots = {name: _snapshot(name, value) for name, value in (data or {}).items()}
    shards = {name: one.shards is not None for name, one in snapshots.items()}
    found = flow_validation.problems(converted, snapshots=shards)
    if found:
        raise InvalidFlow("\n".join(f"flow.{path}: {text}" for path, text in found))
    program, _ = flow_program.build(converted)
    groups = ["", *(node.step.group for node in program.all_nodes())]
    new = run_types.NewFlowRun(
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
    made = live_run_state.Run(new, live_run_state.RunState(started=0.0), row=1)
    process = _Process(made, functions or {})
    process.finish()
    return Done(views.run_view(made), process.attempts)


def _converted(declared: flow.Flow | Mapping[str, Any]) -> flow.Flow:
    if isinstance(declared, flow.Flow):
        return declared
    try:
        return msgspec.convert(declared, flow.Flow)
    except msgspec.ValidationError as error:
        raise InvalidFlow(f"flow: {error}") from error


def _snapshot(name: str, value: Any) -> run_types.SnapshotRef:
    if isinstance(value, run_types.SnapshotRef):
        return value
    return run_types.SnapshotRef(name=name, digest=f"sha256:{name}", shards=list(value))


class _Process:
    """Carries out the instructions of a flow's plan."""

    def __init__(self, run: live_run_state.Run, functions: Functions) -> None:
        self._run, self._functions = run, functions
        self._timeline = flow_timeline.Timeline()
        self._spent_s = 0.0
        """Seconds that the current item has slept, or waited for retries."""
        self.attempts: dict[str, list[str]] = {}
        self._called = 0

    def finish(self) -> None:
        """Carry out the instructions of the plan until the flow has ended."""
        run, line = self._run, self._timeline
        if run.program.timeout_s is not None:
            line.add(
                flow_timeline.Event(flow_timeline.Kind.LIMIT, ""),
                after_s=run.program.timeout_s,
            )
        while True:
            wanted = run_planning.advance(run, now=line.now)
            for instruction in wanted:
                self._carry_out(instruction)
            if run.state.stage is live_run_state.FlowStage.OVER:
                return
            if wanted:
                continue  # carrying them out may have ended a step
            event = line.take()
            if event.kind is flow_timeline.Kind.LIMIT:
                run_planning.timed_out(run, event.key)
            elif event.end is not None:
                run_planning.job_ended(run, event.key, event.end)
            elif event.work is not None:
                end, seconds = self._done(event.key, event.work)
                ended = flow_timeline.Event(flow_timeline.Kind.END, event.key, event.work, end)
                line.add(ended, after_s=seconds)

    def _carry_out(self, instruction: live_run_state.Instruction) -> None:
        key, line = instruction.key, self._timeline
        if isinstance(instruction, live_run_state.StartJob):
            line.add(flow_timeline.Event(flow_timeline.Kind.CALL, key, instruction.work))
        elif isinstance(instruction, live_run_state.SetTimeLimit):
            line.add(
                flow_timeline.Event(flow_timeline.Kind.LIMIT, key),
                after_s=instruction.seconds,
            )
        elif (work := line.stop(key)) is not None:
            counts = run_types.TaskCounts(total=work.size, cancelled=work.size)
            run_planning.job_ended(
                self._run, key, live_run_state.JobEnd(False, _R.STOPPED, counts=counts)
            )

    def _done(self, key: str, work: step_inputs.StepWork) -> tuple[live_run_state.JobEnd, float]:
        """Call the function of a step for each of its items.

        Return the step's end and the seconds that it took.
        """
        spent: list[float] = []
        end = self._call_all(key, work, spent)
        return end, flow_timeline.makespan_s(spent, work.parallel)

    def _call_all(
        self, key: str, work: step_inputs.StepWork, spent: list[float]
    ) -> live_run_state.JobEnd:
        call = work.template.call
        if call is None:
            path = live_run_state.step_path(key)
            raise InvalidFlow(f"step {path} is no call: only those run in this process")
        inputs = step_inputs.Inputs(work)
        found: list[bytes] = []
        failed, first, cause, trouble = 0, "", "", ""
        for number in range(work.size):
            self._spent_s = 0.0
            try:
                found.append(self._call(key, work, call.function, inputs.encode_inputs(number)))
            except _NotJson as error:
                trouble = trouble or str(error)
                found.append(b"null")
            except Exception as error:  # noqa: BLE001 - whatever a task function raises
                failed += 1
                found.append(b"null")
                message = _text(error)
                first = first or (f"shard {number}: {message}" if work.variable else message)
                cause = cause or _cause(error)
            spent.append(self._spent_s)
            if failed > work.max_failed:
                break
        counts = run_types.TaskCounts(
            total=work.size,
            succeeded=len(found) - failed,
            failed=failed,
            cancelled=work.size - len(found),
        )
        if failed > work.max_failed:
            reason = step_item_source.StepItems.failed_reason if work.variable else cause
            return live_run_state.JobEnd(
                False, reason, _message(work, failed, first), cause, counts
            )
        value = b"[%b]" % b",".join(found) if work.variable else found[0]
        if work.wanted and len(value) > step_results.MAX_BYTES:
            trouble = trouble or step_results.TOO_LARGE
        if trouble and not work.needed:
            return live_run_state.JobEnd(True, "", "", cause, counts)
        if work.wanted and trouble:
            return live_run_state.JobEnd(False, _R.RESULT_TOO_LARGE, trouble, cause, counts)
        return live_run_state.JobEnd(True, "", "", cause, counts, value if work.wanted else None)

    def _call(self, key: str, work: step_inputs.StepWork, name: str, given: bytes) -> bytes:
        function = self._function(name)
        args, kwargs = msgspec.json.decode(step_inputs.encode_arguments(work.template, given))
        retry = work.retry or api_task.Retry()
        self._called += 1
        task = ids.TaskId(self._called.to_bytes(16))
        for attempt in range(1, retry.max_attempts + 1):
            inner = context.Context(task, run=1, attempt=attempt, name=work.name)
            try:
                value = self._attempt(lambda: function(*args, **kwargs), inner, work)
            except Exception as error:
                wanted = isinstance(error, _TooLong) and "timeout" in retry.on
                if attempt == retry.max_attempts or (retry.on and not wanted):
                    raise
                self._spent_s += _delay_s(retry, attempt)
                continue
            written = sync_set_env.output_directory(ids.task_text(task), run=1, attempt=attempt)
            self.attempts.setdefault(live_run_state.step_path(key), []).append(written)
            data = exact_json.encode(value)
            if data is None or len(data) > step_results.MAX_BYTES:
                raise _NotJson(f"the result of {name} is no JSON, or too large")
            return data
        raise AssertionError("max_attempts is at least 1")

    def _attempt(
        self, call: Callable[[], Any], inner: context.Context, work: step_inputs.StepWork
    ) -> Any:
        """Call the function of a step once.

        Raises the function's exceptions, and _TooLong if it has slept for too long.
        """
        before, thread = self._spent_s, threading.get_ident()

        def sleep(seconds: float) -> None:
            self._spent_s += max(0.0, seconds)

        failure: Exception | None = None
        value: Any = None
        context.begin(inner)
        try:
            with clock.patched(sleep, applies=lambda: threading.get_ident() == thread):
                value = call()
        except Exception as error:  # noqa: BLE001 - whatever a task function raises
            failure = error
        finally:
            context.end()
        limit_s = work.attempt_seconds
        if limit_s is not None and self._spent_s - before > limit_s:
            self._spent_s = before + limit_s
            raise _TooLong(f"an attempt took longer than {limit_s:g} s, attemptSeconds")
        if failure is not None:
            raise failure
        return value

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
    """Return the message about a step with too many failed tasks, with the text of a real run."""
    if work.size == 1:
        return first
    wanted = resolved_job_settings.Completion(max_failed=work.max_failed)
    ended = job_records.ItemCounts()
    ended.failed = failed
    why = completion.failure_message(
        wanted, ended, work.size, nouns=step_item_source.StepItems.nouns
    )
    return f"{why}: {first}"


class _NotJson(Exception):
    """A task has succeeded, but its result is not JSON, so other steps cannot read it."""


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, _TooLong) else f"{type(error).__name__}: {error}"


class _TooLong(Exception):
    """An attempt has exceeded its timeout."""


def _delay_s(retry: api_task.Retry, failures: int) -> float:
    """Return the delay before a retry, as the dispatcher computes it, without jitter."""
    delay = retry.delay_seconds * retry.factor ** (failures - 1)
    return float(min(delay, retry.max_delay_seconds))


def _cause(error: Exception) -> str:
    if isinstance(error, _TooLong):
        return str(reasons.Reason.TIMED_OUT)
    unusable = isinstance(error, flow_expressions.ExpressionError)
    return "TaskUnusable" if unusable else "Raised"
