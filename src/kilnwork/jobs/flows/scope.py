"""Scope: resolves the names in an expression at one place of a flow.

Used by `run_planning` and `step_work_builder`. No I/O, except that a `Run` reads values from the
journal.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import flow_expressions
from kilnwork.jobs.flows import live_run_state, run_types


class SkippedStep(Exception):
    """An expression names a step that was skipped or did not run, so that the step with the
    expression is skipped too."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


class Scope:
    """Names that an expression can use. `steps`: keys of the instances in scope, by the name of
    their step.
    """

    def __init__(self, run: live_run_state.Run, steps: Mapping[str, str]) -> None:
        self._run, self.steps = run, dict(steps)

    def with_steps(self, more: Mapping[str, str]) -> "Scope":
        """Return a scope with additional steps."""
        return Scope(self._run, {**self.steps, **more})

    def lookup(self, name: flow_expressions.Name) -> Any:
        """Return the value of a name. Raises SkippedStep, ExpressionError."""
        root, member = name
        new = self._run.new
        if root in self.steps:
            return self._of_step(root, member or "")
        if root == "data":
            return self._snapshot(member or "")
        if root == "params":
            return self._run.params[member or ""]
        if root == "set":
            known: dict[str, Any] = {"name": new.set_name, "generation": new.generation}
            return known[member or ""]
        if root == "error":
            failed = self._error()
            return failed if member is None or failed is None else failed[member]
        raise SkippedStep(root)

    def _snapshot(self, name: str) -> dict[str, Any]:
        found = self._run.new.snapshots.get(name)
        if found is None:
            raise flow_expressions.ExpressionError(f"needs data.{name}, which the run has not got")
        count = None if found.shards is None else len(found.shards)
        return {"name": name, "digest": found.digest, "bytes": found.bytes, "shards": count}

    def _error(self) -> dict[str, str] | None:
        state = self._run.state
        if state.phase is not run_types.FlowPhase.FAILED:
            return None
        return {"step": state.step, "reason": state.reason, "message": state.message}

    def _of_step(self, step: str, member: str) -> Any:
        record = self._run.records.get(self.steps[step])
        if member == "state":
            return run_types.InstanceState.WAITING.value if record is None else record.state.value
        if record is None or record.state is run_types.InstanceState.SKIPPED:
            raise SkippedStep(step)
        if member == "counts":
            return msgspec.structs.asdict(record.counts)
        if member == "iteration":
            return record.iteration
        return self._run.value(record.key)
