"""Creation of a step's work when the step begins: template, inputs and items, computed from the
values so far.

Used by `run_planning`. No I/O, except that a `Run` reads values from the journal.
"""

from typing import Any

import msgspec

from kilnwork.api import flow_expressions, flow_program, reasons, resolved_job_settings
from kilnwork.api import task as api_task
from kilnwork.jobs.flows import live_run_state, scope, step_inputs

MAX_ITEMS = 1_000_000
"""Maximum number of items of one step, the same as that of indexes of a Job."""

_R = reasons.FlowReason
_encode = flow_expressions.encode


class StepFailure(Exception):
    """A step cannot begin or continue."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def make_step_work(
    run: live_run_state.Run, key: str, node: flow_program.FlowNode, here: scope.Scope
) -> step_inputs.StepWork:
    """Return the work of a step instance that is to begin. Raises StepFailure, SkippedStep."""
    new, step = run.new, node.step
    each = node.kind is flow_program.NodeKind.EACH
    items = _items(run, node, here)
    largest = max(len(items) - 1, 0) if each else None
    template = _template(run, node)
    most = node.max_failed
    if isinstance(most, str):
        most = resolved_job_settings.percent_of(most, len(items))
    memo = ""
    if step.deterministic and new.memo:
        snapshots = [(one.name, one.digest) for one in new.snapshots.values()]
        memo = step_inputs.memo_digest(node.task or template, node.name, snapshots)
    return step_inputs.StepWork(
        name=flow_program.task_prefix(new.set_name, new.generation, key, largest=largest),
        template=template,
        retry=step.retry,
        attempt_seconds=step.attempt_seconds,
        shared=_shared(node, here),
        variable=step.each,
        own=node.item_inputs,
        scope=_scope(node, here),
        items=items,
        portions=_portions(run, node),
        max_failed=most,
        parallel=step.parallel,
        wanted=node.is_kept or bool(memo),
        needed=node.is_referenced,
        memo=memo,
    )


def _items(
    run: live_run_state.Run, node: flow_program.FlowNode, here: scope.Scope
) -> tuple[msgspec.Raw, ...]:
    if node.items is None:
        return ()
    path = node.items.path
    if len(path) == 2 and path[0] == "data":
        snapshot = run.new.snapshots.get(path[1])
        if snapshot is None or snapshot.shards is None:
            raise StepFailure(_R.INVALID_SPEC, f"of: snapshot {path[1]} has no shards")
        found: Any = snapshot.shards
    else:
        try:
            found = node.items.evaluate(here.lookup)
        except flow_expressions.ExpressionError as error:
            raise StepFailure(_R.EXPRESSION_FAILED, f"of: {error}") from error
    if not isinstance(found, list):
        text = f"of: gives {type(found).__name__}, and a list is needed"
        raise StepFailure(_R.EXPRESSION_FAILED, text)
    if len(found) > MAX_ITEMS:
        text = f"of: gives {len(found)} items; {MAX_ITEMS} are allowed"
        raise StepFailure(_R.EXPRESSION_FAILED, text)
    return tuple(msgspec.Raw(_encode(one)) for one in found)


def _shared(node: flow_program.FlowNode, here: scope.Scope) -> dict[str, msgspec.Raw]:
    found = {}
    for name, document in node.shared_inputs.items():
        try:
            found[name] = msgspec.Raw(_encode(document.evaluate(here.lookup)))
        except flow_expressions.ExpressionError as error:
            raise StepFailure(_R.EXPRESSION_FAILED, f"with.{name}: {error}") from error
    return found


def _scope(node: flow_program.FlowNode, here: scope.Scope) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in node.item_input_names:
        try:
            value = here.lookup(name)
        except flow_expressions.ExpressionError as error:
            raise StepFailure(_R.EXPRESSION_FAILED, f"with: {error}") from error
        found.setdefault(name.root, {})[name.member or ""] = value
    return found


def _template(run: live_run_state.Run, node: flow_program.FlowNode) -> api_task.TaskTemplate:
    template, clusters = node.task, run.new.clusters
    if template is None:
        raise StepFailure(_R.INVALID_SPEC, "it has nothing to run")
    if node.needs_no_group:
        return template
    group = _group(run, node)
    if group not in clusters:
        raise StepFailure(_R.INVALID_SPEC, f"there is no group {group or 'of workers'} in the set")
    return msgspec.structs.replace(template, cluster_name=clusters[group])


def _group(run: live_run_state.Run, node: flow_program.FlowNode) -> str:
    return node.step.group or next(iter(run.new.clusters), "")


def _portions(run: live_run_state.Run, node: flow_program.FlowNode) -> int:
    if node.items is None or node.needs_no_group:
        return 0
    snapshots = {name.member for name in node.items.names if name.root == "data"}
    if snapshots.isdisjoint(run.new.by_shard):
        return 0
    return run.new.portions.get(_group(run, node), 0)
