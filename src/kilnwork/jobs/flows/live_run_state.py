"""Records of a flow's run in memory: its step instances and their values.

Changed by `run_planning` and `reopening`; `row_storage` writes the changes. The key of an instance
is its path in the flow with the numbers of rounds, such as `price`, `checks.var` or
`solve[3].iterate`; "" is the run itself.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import flow_program, flow_validation
from kilnwork.jobs.flows import run_types, step_inputs

State = run_types.InstanceState
_ROUND = re.compile(r"(?<=\w)\[[0-9]+\]")
_decode = msgspec.json.Decoder().decode


class FlowStage(IntEnum):
    """Stage of a run: the section of the flow that is running. The numbers are stored in the
    journal.
    """

    DO = 1
    CATCH = 2
    FINALLY = 3
    ENDING = 4
    """The outcome is decided; some of the stopped jobs have not ended yet."""
    OVER = 5


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Record of a step instance that has begun."""

    key: str
    state: State
    started: float
    """When the instance began, in wall clock seconds; `finished`: when it ended."""
    finished: float | None = None
    reason: str = ""
    message: str = ""
    cause: str = ""
    """Reason of the first task that failed for good."""
    alternative: bool = False
    """Whether the `else` of the step is run instead."""
    job: bool = False
    """Whether the instance has, or had, a job."""
    open: bool = False
    """Whether the job of the instance is unfinished."""
    iteration: int = 0
    """Current round of a loop, from 0."""
    run: int = 1
    """Run of the generation in which the instance began."""
    job_run: int = 1
    """Minimum run number of the instance's job. The job counts its runs itself; a job that has
    succeeded may be in an earlier run."""
    counts: run_types.TaskCounts = run_types.TaskCounts()
    """Counts of the instance's job, once it has ended."""


class RunState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """State of a run as a whole; stored in the journal as JSON."""

    started: float
    made: str = ""
    """Epoch of the dispatcher that started the run, and the run's row, as `EPOCH.ROW`. Together
    they distinguish the run from an earlier run of the same generation that was deleted."""
    stage: FlowStage = FlowStage.DO
    phase: run_types.FlowPhase = run_types.FlowPhase.RUNNING
    """Outcome of the run; Running while the outcome is undecided."""
    reason: str = ""
    message: str = ""
    cause: str = ""
    step: str = ""
    """Key of the step that failed."""
    clause: int = 0
    """Index of the clause of `catch` that matches."""
    finally_started: float | None = None
    suspended: bool = False
    killed: tuple[str, str] | None = None
    """Reason and message of the request to end the run."""
    finished: float | None = None
    run: int = 1
    """Number of the run within the generation, which increases each time that failed steps are run
    again."""
    resumed: float | None = None
    """When failed steps were last run again."""
    deleting: bool = False
    version: int = 0


class JobEnd(NamedTuple):
    """Outcome of the job of a step."""

    succeeded: bool
    reason: str = ""
    message: str = ""
    cause: str = ""
    counts: run_types.TaskCounts = run_types.TaskCounts()
    value: bytes | None = None
    """The result, or the list of results, as JSON; None if no step reads it."""


class StartJob(NamedTuple):
    """Instruction: create the job of a step."""

    key: str
    work: step_inputs.StepWork


class StopJob(NamedTuple):
    """Instruction: end the job of a step."""

    key: str
    message: str


class SetTimeLimit(NamedTuple):
    """Instruction: call `run_planning.timed_out` when an instance has run for this many seconds."""

    key: str
    seconds: float


Instruction = StartJob | StopJob | SetTimeLimit


class Run:
    """A run of a flow in memory. `read_value` reads a value from the journal."""

    def __init__(
        self,
        new: run_types.NewFlowRun,
        state: RunState,
        *,
        row: int,
        read_value: Callable[[str], bytes | None] = lambda key: None,
    ) -> None:
        self.new, self.state, self.row = new, state, row
        self.program, problems = flow_program.build(new.flow)
        if problems:
            raise ValueError("; ".join(f"{path} {text}" for path, text in problems))
        flow_validation.mark_kept_steps(self.program)
        self.params = {**new.flow.params, **new.params}
        self.records: dict[str, Record] = {}
        self.totals: dict[str, run_types.TaskCounts] = {}
        """Counts of jobs that have ended, by path of the step."""
        self.newest: dict[str, Record] = {}
        """The newest instance of each step, by its path."""
        self.ends: dict[str, JobEnd] = {}
        """Outcomes of jobs that the plan has not processed yet."""
        self.late: set[str] = set()
        """Instances that have exceeded their time limit, until the plan has processed them."""
        self.changed: dict[str, None] = {}
        """Keys of records that are not in the journal yet, in the order of their changes."""
        self.changed_values: dict[str, bytes] = {}
        self.dropped: dict[str, None] = {}
        """Keys of deleted records that are still in the journal."""
        self.dirty = True
        """Whether `state` has changes that are not in the journal."""
        self.redefined = False
        """Whether `new` has changes that are not in the journal."""
        self.shown_version = 0
        """Highest version of the jobs that have ended; the version of the run is never lower."""
        self.open_jobs: dict[str, None] = {}
        """Keys of the instances whose jobs are unfinished, oldest first."""
        self._values: dict[str, bytes] = {}
        self._read_value = read_value

    def put(self, record: Record) -> Record:
        """Add or replace the record of an instance, mark it as changed, and return it."""
        self.load(record)
        self.changed[record.key] = None
        return record

    def load(self, record: Record) -> None:
        """Add a record that was read from the journal."""
        path = step_path(record.key)
        before = self.records.get(record.key)
        self.totals[path] = _add(self.totals.get(path, run_types.TaskCounts()), before, record)
        if before is None or self.newest[path].key == record.key:
            self.newest[path] = record
        self.records[record.key] = record
        if record.open:
            self.open_jobs[record.key] = None
        else:
            self.open_jobs.pop(record.key, None)

    def drop(self, key: str) -> None:
        """Delete the record of an instance, so that it may begin again. None of its tasks may be
        running."""
        path = step_path(key)
        before = self.records.pop(key)
        self.totals[path] = _add(
            self.totals[path], before, Record(key=key, state=before.state, started=0)
        )
        if self.newest[path].key == key:
            left = [one for one in self.records.values() if step_path(one.key) == path]
            if left:
                self.newest[path] = left[-1]
            else:
                del self.newest[path]
        for known in (self.changed, self.changed_values, self._values):
            known.pop(key, None)
        self.dropped[key] = None

    def update(self, **given: Any) -> None:
        """Change fields of the run's state."""
        self.state = msgspec.structs.replace(self.state, **given)
        self.dirty = True

    def redefine(self, new: run_types.NewFlowRun) -> None:
        """Replace the definition of the run, for steps that have not begun."""
        self.new = new
        self.dirty = self.redefined = True

    def keep_value(self, key: str, value: bytes) -> None:
        """Store the value of a step instance, as JSON."""
        self._values[key] = self.changed_values[key] = value

    def value(self, key: str) -> Any:
        """Return the value of a step instance, or None if the instance has no value."""
        raw = self.raw_value(key)
        return None if raw is None else _decode(raw)

    def raw_value(self, key: str) -> bytes | None:
        """Return the value of a step instance as JSON, or None if the instance has no value."""
        found = self._values.get(key) or self.changed_values.get(key)
        if found is None:
            found = self._read_value(key)
            if found is not None:
                self._values[key] = found
        return found

    def drop_values(self, prefix: str) -> None:
        """Drop from memory the values of all instances whose key has this prefix; no expression can
        name them any more.
        """
        for key in [key for key in self._values if key.startswith(prefix)]:
            del self._values[key]


def _add(total: run_types.TaskCounts, before: Record | None, now: Record) -> run_types.TaskCounts:
    """Return `total` with the counts of the record `before` replaced by those of `now`."""
    old = run_types.TaskCounts() if before is None else before.counts
    if now.counts == old:
        return total
    return run_types.TaskCounts(
        **{
            name: getattr(total, name) + getattr(now.counts, name) - getattr(old, name)
            for name in run_types.TaskCounts.__struct_fields__
        }
    )


def step_path(key: str) -> str:
    """Return the path of an instance's step, without the numbers of rounds: `solve.iterate`."""
    if "[" not in key:
        return key
    section, dot, rest = key.partition(".")
    if section.startswith("catch["):
        return f"{section}{dot}{_ROUND.sub('', rest)}"
    return _ROUND.sub("", key)


def is_within(key: str, outer: str) -> bool:
    """Return whether the instance `key` is the instance `outer` or part of it."""
    return not outer or key == outer or (key.startswith(outer) and key[len(outer)] in ".[")
