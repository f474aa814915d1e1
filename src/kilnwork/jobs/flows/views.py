"""Views of runs of flows: made from their records, and from the jobs in memory for running steps.

Used by `flow_service`, `step_jobs`, `snapshot_resharding` and `testing.inline_flows`. No I/O,
except that a `Run` reads values from the journal.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kilnwork.api import flow_program
from kilnwork.jobs.flows import live_run_state, run_types

_S = run_types.InstanceState
_Kind = flow_program.NodeKind


def run_view(run: live_run_state.Run) -> run_types.FlowRunView:
    """Return the view of a run, without the counts of its unfinished jobs."""
    new, state = run.new, run.state
    over = state.stage is live_run_state.FlowStage.OVER
    return run_types.FlowRunView(
        uid=new.uid,
        namespace=new.namespace,
        set_name=new.set_name,
        generation=new.generation,
        version=state.version,
        phase=state.phase if over else run_types.FlowPhase.RUNNING,
        reason=state.reason,
        message=state.message,
        suspended=state.suspended,
        started=state.started,
        finished=state.finished,
        run=state.run,
        steps={path: _step(run, path) for path in nodes_by_path(run.program)},
        value=run.value("") if over and state.phase is run_types.FlowPhase.SUCCEEDED else None,
    )


class OpenJob(NamedTuple):
    """State of a step's job whose end the plan does not know yet. `running`: number of the job's
    tasks that are running.
    """

    counts: run_types.TaskCounts
    running: int
    version: int
    reason: str = ""
    """Why no task of the job is running; `message` explains it."""
    message: str = ""


def add_open_jobs(
    view: run_types.FlowRunView, jobs: Mapping[str, Iterable[OpenJob]]
) -> run_types.FlowRunView:
    """Return a run's view with the state of its unfinished jobs added. `jobs`: the jobs by path of
    their step.
    """
    steps, latest = dict(view.steps), view.version
    for path, found in jobs.items():
        one = steps[path]
        for counts, running, version, reason, message in found:
            latest = max(latest, version)
            one = msgspec.structs.replace(
                one,
                total=one.total + counts.total,
                succeeded=one.succeeded + counts.succeeded,
                failed=one.failed + counts.failed,
                reused=one.reused + counts.reused,
                running=one.running + running,
                reason=one.reason or reason,
                message=one.message or message,
            )
        steps[path] = one
    return msgspec.structs.replace(view, steps=steps, version=latest)


def nodes_by_path(program: flow_program.Program) -> dict[str, flow_program.FlowNode]:
    """Return all steps of a flow by path, in the order of the flow.

    An `else` that replaces a step has the path of that step and is left out.
    """
    found: dict[str, flow_program.FlowNode] = {}
    for prefix, section in program.sections:
        _collect(prefix, section, found)
    return found


def _collect(
    prefix: str, section: Iterable[flow_program.FlowNode], found: dict[str, flow_program.FlowNode]
) -> None:
    for node in section:
        for one in node.with_alternative:
            found.setdefault(f"{prefix}{one.name}", one)
            _collect(f"{prefix}{one.name}.", one.children, found)


def _step(run: live_run_state.Run, path: str) -> run_types.StepView:
    newest = run.newest.get(path)
    if newest is None:
        return run_types.StepView()
    counts = run.totals[path]
    return run_types.StepView(
        total=counts.total,
        succeeded=counts.succeeded,
        failed=counts.failed,
        reused=counts.reused,
        state=newest.state,
        reason=newest.reason,
        message=newest.message,
    )
