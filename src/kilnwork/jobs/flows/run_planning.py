"""Plan of a flow's run: decides from the records of the run what to do next.

It uses no clock and no engine, and no disk except that a `Run` reads values from the journal. Used
by `flow_service`, `step_jobs` and `kilnwork.testing`. `advance` returns instructions. It may be
called at any time; it does not begin a step twice, so that after a crash the records lead to the
same instructions. The functions below `advance` record events: a job has ended, a time limit has
passed, a user pauses or ends the run.

The plan does not wait for a step that it stops: the following steps begin at once, but the run is
over only when all its jobs have ended.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import flow_expressions, flow_program, reasons
from kilnwork.jobs.flows import live_run_state, run_types, scope, step_work_builder

FINALLY_S = 600.0
"""Time limit in seconds for all steps of `finally` together, so that every run ends."""

MAX_VALUE_BYTES = 4 << 20
"""Maximum size in bytes of a fork's value, the same as that of the results of a step."""

MAX_MESSAGE = 2000
"""Maximum length of a message in characters, since the message of a step is repeated in each step
around it."""

_R = reasons.FlowReason
_S = run_types.InstanceState
_P = run_types.FlowPhase
_Kind = flow_program.NodeKind
_Stage = live_run_state.FlowStage
_FINALLY = "finally"


def advance(run: live_run_state.Run, *, now: float) -> list[live_run_state.Instruction]:
    """Return the instructions to carry out now. The records are changed as if the instructions had
    been carried out."""
    planner = _Planner(run, now)
    before = None
    while before is not run.state.stage:
        before = run.state.stage
        planner.advance_stage()
    run.late.clear()
    return planner.found


def job_ended(run: live_run_state.Run, key: str, end: live_run_state.JobEnd) -> None:
    """Record that the job of an instance has ended, and that none of its tasks is running."""
    record = run.records.get(key)
    if record is None or not record.open:
        return
    run.put(msgspec.structs.replace(record, open=False, counts=end.counts))
    if record.state is _S.RUNNING:
        run.ends[key] = end


def timed_out(run: live_run_state.Run, key: str) -> None:
    """Record that a step instance has exceeded its time limit. The key "" stands for all steps of
    `do`, "finally" for all steps of `finally`.
    """
    run.late.add(key)


def suspend(run: live_run_state.Run, *, suspended: bool) -> None:
    """Pause or resume the run: while it is paused, no step of `do` begins. `catch` and `finally`
    are not paused."""
    if run.state.stage is _Stage.DO and run.state.killed is None:
        run.update(suspended=suspended)


def kill(run: live_run_state.Run, reason: str, message: str) -> None:
    """Request the end of the run: stop its running steps, then run `finally` unless it is running
    already.
    """
    if run.state.stage < _Stage.FINALLY and run.state.killed is None:
        run.update(killed=(reason, message), suspended=False)


def abandon(run: live_run_state.Run) -> None:
    """Request the end of all steps of the run, including `finally`, because the run is deleted."""
    if not run.state.deleting:
        killed = run.state.killed or (_R.DELETED, "it was deleted")
        run.update(deleting=True, killed=killed, suspended=False)


class _Planner:
    """State of one call of `advance`."""

    def __init__(self, run: live_run_state.Run, now: float) -> None:
        self.run, self.now = run, now
        self.found: list[live_run_state.Instruction] = []

    # the run

    def advance_stage(self) -> None:
        """Advance the current stage of the run, and end the stage if all its steps have ended."""
        run, state = self.run, self.run.state
        if state.deleting and state.stage < _Stage.ENDING:
            self.stop_instances("", "the run was deleted")
            reason, message = state.killed or (_R.DELETED, "")
            phase = _P.KILLED if state.phase is _P.RUNNING else state.phase
            if state.phase is _P.RUNNING:
                run.update(reason=reason, message=message)
            run.update(stage=_Stage.ENDING, phase=phase)
        elif state.stage is _Stage.DO:
            self._advance_do()
        elif state.stage is _Stage.CATCH:
            self._advance_catch()
        elif state.stage is _Stage.FINALLY:
            self._advance_finally()
        elif state.stage is _Stage.ENDING and not run.open_jobs:
            run.update(stage=_Stage.OVER, finished=self.now)

    def _advance_do(self) -> None:
        run, program = self.run, self.run.program
        if run.state.killed is not None:
            self.stop_instances("", run.state.killed[1])
            self._end_do(_P.KILLED, *run.state.killed)
            return
        if "" in run.late:
            self.stop_instances("", "the flow has taken too long")
            message = f"its steps have taken {program.timeout_s:g} s, flow.timeoutSeconds"
            self._end_do(_P.FAILED, _R.FLOW_TIMED_OUT, message)
            return
        last = self.advance_steps("", program.nodes, scope.Scope(run, {}))
        if last is None:
            return
        if last.state is _S.FAILED:
            message = f"step {last.key}: {last.message}"
            self._end_do(_P.FAILED, last.reason, message, cause=last.cause, step=last.key)
            return
        try:
            self._keep_result(last)
        except step_work_builder.StepFailure as failure:
            self._end_do(_P.FAILED, failure.reason, failure.message)
            return
        self._end_do(_P.SUCCEEDED, "", "")

    def _keep_result(self, last: live_run_state.Record) -> None:
        result = self.run.program.result
        if result is None:
            value = self.run.raw_value(last.key)
        else:
            try:
                value = flow_expressions.encode(result.evaluate(self._top_scope().lookup))
            except scope.SkippedStep:
                value = None
            except flow_expressions.ExpressionError as error:
                raise step_work_builder.StepFailure(
                    _R.EXPRESSION_FAILED, f"result: {error}"
                ) from error
        if value is not None:
            self.run.keep_value("", value)

    def _top_scope(self) -> scope.Scope:
        return scope.Scope(self.run, {node.name: node.name for node in self.run.program.nodes})

    def _end_do(
        self,
        phase: run_types.FlowPhase,
        reason: str,
        message: str,
        *,
        cause: str = "",
        step: str = "",
    ) -> None:
        """End `do`, and begin `catch` or `finally`."""
        run = self.run
        run.update(phase=phase, reason=reason, message=message, cause=cause, step=step)
        run.update(suspended=False)
        clauses = run.program.catch if phase is _P.FAILED else ()
        fitting = (n for n, clause in enumerate(clauses) if clause.applies_to((reason, cause)))
        chosen = next(fitting, None)
        if chosen is None:
            self._begin_finally()
        else:
            run.update(stage=_Stage.CATCH, clause=chosen)

    def _advance_catch(self) -> None:
        run, number = self.run, self.run.state.clause
        prefix = f"catch[{number}]"
        if run.state.killed is not None:
            self.stop_instances(prefix, run.state.killed[1])
        elif (
            self.advance_steps(f"{prefix}.", run.program.catch[number].nodes, self._top_scope())
            is None
        ):
            return
        self._begin_finally()

    def _begin_finally(self) -> None:
        run = self.run
        if not run.program.finally_steps:
            run.update(stage=_Stage.ENDING)
            return
        run.update(stage=_Stage.FINALLY, finally_started=self.now)
        self.found.append(live_run_state.SetTimeLimit(_FINALLY, FINALLY_S))

    def _advance_finally(self) -> None:
        run = self.run
        last: live_run_state.Record | None
        trouble: tuple[str, str]
        if _FINALLY in run.late:
            self.stop_instances(_FINALLY, "the steps of finally have taken too long")
            trouble = (_R.FINALLY_TIMED_OUT, f"the steps of finally have taken {FINALLY_S:g} s")
        else:
            last = self.advance_steps(f"{_FINALLY}.", run.program.finally_steps, self._top_scope())
            if last is None:
                return
            trouble = (last.reason, f"step {last.key}: {last.message}")
            if last.state is not _S.FAILED:
                trouble = ("", "")
        if trouble[0] and run.state.phase is _P.SUCCEEDED:
            run.update(phase=_P.FAILED, reason=trouble[0], message=trouble[1])
        run.update(stage=_Stage.ENDING)

    # steps

    def advance_steps(
        self, prefix: str, nodes: Iterable[flow_program.FlowNode], outer: scope.Scope
    ) -> live_run_state.Record | None:
        """Advance a sequence of steps. Return the record of the last step or of a failed step, or
        None while a step is open.
        """
        last = None
        here = outer.with_steps({})
        for node in nodes:
            last = self.advance_node(prefix + node.name, node, here)
            if last is None or last.state is _S.RUNNING:
                return None
            if last.state is _S.FAILED:
                return last
            here.steps[node.name] = last.key
        return last

    def advance_node(
        self, key: str, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record | None:
        """Begin or advance a step instance, and return its record, or None if it must not begin
        yet.
        """
        record = self.run.records.get(key)
        if record is None:
            if self.run.state.suspended:
                return None
            record = self._begin(key, node, here)
        if record.state is not _S.RUNNING:
            return record
        if key in self.run.late:
            limit = node.step.timeout_seconds or 0.0
            self.stop_instances(key, "its step has taken too long")
            message = f"it has taken {limit:g} s, timeoutSeconds"
            return self._close(self.run.records[key], _S.FAILED, _R.STEP_TIMED_OUT, message)
        chosen = node.alternative if record.alternative and node.alternative is not None else node
        try:
            return _ADVANCE[chosen.kind](self, record, chosen, here)
        except step_work_builder.StepFailure as failure:
            self.stop_instances(key, "its step has failed")
            return self._close(self.run.records[key], _S.FAILED, failure.reason, failure.message)

    def _begin(
        self, key: str, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record:
        number = self.run.state.run
        record = live_run_state.Record(key=key, state=_S.RUNNING, started=self.now, run=number)
        try:
            chosen, alternative = self._choose(node, here)
            if chosen is None:
                return self._close(record, _S.SKIPPED, _R.CONDITION_FALSE, "its `if` is false")
            work = (
                step_work_builder.make_step_work(self.run, key, chosen, here)
                if chosen.kind.leaf
                else None
            )
        except scope.SkippedStep as skipped:
            message = f"it needs step {skipped.step}, which was skipped"
            return self._close(record, _S.SKIPPED, _R.INPUT_SKIPPED, message)
        except step_work_builder.StepFailure as failure:
            return self._close(record, _S.FAILED, failure.reason, failure.message)
        opened = work is not None
        record = msgspec.structs.replace(record, alternative=alternative, job=opened, open=opened)
        self.run.put(record)
        if work is not None:
            self.found.append(live_run_state.StartJob(key, work))
        if node.step.timeout_seconds is not None:
            self.found.append(live_run_state.SetTimeLimit(key, node.step.timeout_seconds))
        return record

    def _choose(
        self, node: flow_program.FlowNode, here: scope.Scope
    ) -> tuple[flow_program.FlowNode | None, bool]:
        if node.condition is None:
            return node, False
        try:
            if node.condition.evaluate_bool(here.lookup):
                return node, False
        except flow_expressions.ExpressionError as error:
            raise step_work_builder.StepFailure(_R.EXPRESSION_FAILED, f"if: {error}") from error
        return node.alternative, True

    # running steps

    def _advance_leaf(
        self, record: live_run_state.Record, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record:
        end = self.run.ends.pop(record.key, None)
        if end is None:
            return record
        if end.value is not None:
            self.run.keep_value(record.key, end.value)
        state = _S.SUCCEEDED if end.succeeded else _S.FAILED
        return self._close(record, state, end.reason, end.message, cause=end.cause)

    def _advance_fork(
        self, record: live_run_state.Record, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record:
        key = record.key
        branches = {
            child.name: self.advance_node(f"{key}.{child.name}", child, here)
            for child in node.children
        }
        found = [one for one in branches.values() if one is not None]
        passed = (_S.SUCCEEDED,) if node.min_successful else (_S.SUCCEEDED, _S.SKIPPED)
        good = sum(one.state in passed for one in found)
        still = sum(one is None or one.state is _S.RUNNING for one in branches.values())
        wanted = node.min_successful or len(branches)
        if good + still < wanted:
            failed = next((one for one in found if one.state is _S.FAILED), None)
            if failed is None:
                raise step_work_builder.StepFailure(
                    _R.BRANCHES_SKIPPED, f"{good} branches have succeeded, and {wanted} must"
                )
            self._stop_branches(key, found, "another branch has failed")
            message = f"step {failed.key}: {failed.message}"
            return self._close(record, _S.FAILED, failed.reason, message, cause=failed.cause)
        if good < wanted:
            return record
        self._stop_branches(key, found, "enough branches have succeeded")
        if node.is_kept:
            self._keep_branches(key, branches)
        return self._close(record, _S.SUCCEEDED)

    def _stop_branches(self, key: str, found: list[live_run_state.Record], message: str) -> None:
        for one in found:
            if one.state is _S.RUNNING:
                self.stop_instances(one.key, message)

    def _keep_branches(self, key: str, branches: dict[str, live_run_state.Record | None]) -> None:
        parts = []
        for name, one in branches.items():
            raw = None
            if one is not None and self.run.records[one.key].state is _S.SUCCEEDED:
                raw = self.run.raw_value(one.key)
            parts.append(b'"%b":%b' % (name.encode(), raw or b"null"))
        value = b"{%b}" % b",".join(parts)
        if len(value) > MAX_VALUE_BYTES:
            message = f"the values of its branches take {len(value)} bytes, more than 4 MiB"
            raise step_work_builder.StepFailure(_R.RESULT_TOO_LARGE, message)
        self.run.keep_value(key, value)

    def _advance_group(
        self, record: live_run_state.Record, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record:
        last = self.advance_steps(f"{record.key}.", node.children, here)
        if last is None:
            return record
        if last.state is _S.FAILED:
            message = f"step {last.key}: {last.message}"
            return self._close(record, _S.FAILED, last.reason, message, cause=last.cause)
        self._keep_last(record.key, last, node)
        return self._close(record, _S.SUCCEEDED)

    def _keep_last(
        self, key: str, last: live_run_state.Record, node: flow_program.FlowNode
    ) -> None:
        value = self.run.raw_value(last.key) if node.is_kept else None
        if value is not None:
            self.run.keep_value(key, value)

    def _advance_until(
        self, record: live_run_state.Record, node: flow_program.FlowNode, here: scope.Scope
    ) -> live_run_state.Record:
        """Advance the current round of a loop, or begin the next round, and return the record of
        the loop.

        The loop ends if `until` is true, a step fails, or `max` rounds have run.
        """
        key, most = record.key, node.step.max or 1
        inside = here.with_steps({node.name: key})
        while True:
            prefix = f"{key}[{record.iteration}]."
            last = self.advance_steps(prefix, node.children, inside)
            if last is None:
                return record
            if last.state is _S.FAILED:
                message = f"step {last.key}: {last.message}"
                return self._close(record, _S.FAILED, last.reason, message, cause=last.cause)
            self._keep_last(key, last, node)
            names = {child.name: f"{prefix}{child.name}" for child in node.children}
            done = self._is_done(node, inside.with_steps(names))
            self.run.drop_values(prefix)
            if done:
                return self._close(record, _S.SUCCEEDED)
            if record.iteration + 1 >= most:
                message = f"`until` is still false after {most} rounds, `max`"
                return self._close(record, _S.FAILED, _R.MAX_ROUNDS_REACHED, message)
            record = msgspec.structs.replace(record, iteration=record.iteration + 1)
            self.run.put(record)

    def _is_done(self, node: flow_program.FlowNode, inside: scope.Scope) -> bool:
        condition = node.condition_of_loop
        if condition is None:
            return True
        try:
            return condition.evaluate_bool(inside.lookup)
        except scope.SkippedStep as skipped:
            message = f"until: it needs step {skipped.step}, which was skipped"
            raise step_work_builder.StepFailure(_R.EXPRESSION_FAILED, message) from skipped
        except flow_expressions.ExpressionError as error:
            raise step_work_builder.StepFailure(_R.EXPRESSION_FAILED, f"until: {error}") from error

    # ends of steps

    def _close(
        self,
        record: live_run_state.Record,
        state: run_types.InstanceState,
        reason: str = "",
        message: str = "",
        *,
        cause: str = "",
    ) -> live_run_state.Record:
        return self.run.put(
            msgspec.structs.replace(
                record,
                state=state,
                reason=reason,
                message=message[:MAX_MESSAGE],
                cause=cause,
                finished=self.now,
            )
        )

    def stop_instances(self, key: str, message: str) -> None:
        """Stop all running step instances within an instance."""
        for one in list(self.run.records.values()):
            if one.state is not _S.RUNNING or not live_run_state.is_within(one.key, key):
                continue
            if one.open:
                self.found.append(live_run_state.StopJob(one.key, message))
            self.run.ends.pop(one.key, None)
            self._close(one, _S.KILLED, _R.STOPPED, message)


_ADVANCE = {
    _Kind.WORK: _Planner._advance_leaf,
    _Kind.EACH: _Planner._advance_leaf,
    _Kind.FORK: _Planner._advance_fork,
    _Kind.GROUP: _Planner._advance_group,
    _Kind.UNTIL: _Planner._advance_until,
}
