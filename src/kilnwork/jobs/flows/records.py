"""What memory has of a run that is not over: records of its step instances, and their values.

Changed by `plan` and its facts; `tables` writes what has changed. A key says which instance:
`price`, `checks.var`, `solve[3].iterate`; "" is the run.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import flow_program, flow_validation
from kilnwork.jobs.flows import model, step_inputs

State = model.InstanceState
_ROUND = re.compile(r"(?<=\w)\[[0-9]+\]")
_decode = msgspec.json.Decoder().decode


class Stage(IntEnum):
    """Which part of a flow runs; the journal has the numbers."""

    DO = 1
    CATCH = 2
    FINALLY = 3
    ENDING = 4
    """All is decided; jobs that were stopped are not over yet."""
    OVER = 5


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step instance that has begun."""

    key: str
    state: State
    started: float
    """Wall clock, seconds, as `finished`."""
    finished: float | None = None
    reason: str = ""
    message: str = ""
    cause: str = ""
    """Reason of the first task that has failed for good."""
    alternative: bool = False
    """Its `else` is done."""
    job: bool = False
    """It has a job, or had one."""
    open: bool = False
    """Its job is not over."""
    iteration: int = 0
    """Of a loop: the round that runs, from 0."""
    run: int = 1
    """In which run of the generation it began."""
    job_run: int = 1
    """Its job is in this run of its own, or a later one, unless that has succeeded."""
    counts: model.Counts = model.Counts()
    """Of a job that is over."""


class RunState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known of a run as a whole; in the journal it is JSON."""

    started: float
    made: str = ""
    """Distinguishes it from a run of the same generation that was forgotten: the epoch of the
    dispatcher that started it, and its row."""
    stage: Stage = Stage.DO
    phase: model.Phase = model.Phase.RUNNING
    """How it ends; Running while that is open."""
    reason: str = ""
    message: str = ""
    cause: str = ""
    step: str = ""
    """Key of the step that has failed."""
    clause: int = 0
    """Which of `catch` fits."""
    finally_started: float | None = None
    suspended: bool = False
    killed: tuple[str, str] | None = None
    """Reason and message of the request for its end."""
    finished: float | None = None
    run: int = 1
    """Rises each time that what failed runs again."""
    resumed: float | None = None
    """When that was last."""
    deleting: bool = False
    version: int = 0


class JobEnd(NamedTuple):
    """How the job of a step has ended."""

    succeeded: bool
    reason: str = ""
    message: str = ""
    cause: str = ""
    counts: model.Counts = model.Counts()
    value: bytes | None = None
    """Its result, or the list of its results, JSON, if a step reads that."""


class Start(NamedTuple):
    """Make the job of a step."""

    key: str
    work: step_inputs.StepWork


class Stop(NamedTuple):
    """End the job of a step."""

    key: str
    message: str


class Limit(NamedTuple):
    """Say when an instance has run for so many seconds: `plan.timed_out`."""

    key: str
    seconds: float


Instruction = Start | Stop | Limit


class Run:
    """A run in memory. `read_value`: from the journal, for what was written before."""

    def __init__(
        self,
        new: model.NewFlowRun,
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
        self.totals: dict[str, model.Counts] = {}
        """Counts of jobs that are over, by the path of the step."""
        self.newest: dict[str, Record] = {}
        """The newest instance of each step, by its path."""
        self.ends: dict[str, JobEnd] = {}
        """Of jobs that are over, until the plan has looked."""
        self.late: set[str] = set()
        """Instances whose time is up, until the plan has looked."""
        self.changed: dict[str, None] = {}
        """Keys whose record the journal has not got, in the order of their changes."""
        self.changed_values: dict[str, bytes] = {}
        self.dropped: dict[str, None] = {}
        """Keys whose rows the journal has still got."""
        self.dirty = True
        """The journal has not got `state`."""
        self.redefined = False
        """It has not got `new` either."""
        self.shown_version = 0
        """Of jobs that are over: the version of the run is not below that."""
        self.open_jobs: dict[str, None] = {}
        """Keys of the instances whose jobs are not over, oldest first."""
        self._values: dict[str, bytes] = {}
        self._read_value = read_value

    def put(self, record: Record) -> Record:
        """Keep the newest record of an instance."""
        self.load(record)
        self.changed[record.key] = None
        return record

    def load(self, record: Record) -> None:
        """Take in what the journal has."""
        path = step_path(record.key)
        before = self.records.get(record.key)
        self.totals[path] = _add(self.totals.get(path, model.Counts()), before, record)
        if before is None or self.newest[path].key == record.key:
            self.newest[path] = record
        self.records[record.key] = record
        if record.open:
            self.open_jobs[record.key] = None
        else:
            self.open_jobs.pop(record.key, None)

    def drop(self, key: str) -> None:
        """Forget an instance: it may begin again. Nothing of it runs."""
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
        """Change what is known of the run."""
        self.state = msgspec.structs.replace(self.state, **given)
        self.dirty = True

    def redefine(self, new: model.NewFlowRun) -> None:
        """Change what steps get that have not begun."""
        self.new = new
        self.dirty = self.redefined = True

    def keep_value(self, key: str, value: bytes) -> None:
        """Keep the value of an instance, JSON."""
        self._values[key] = self.changed_values[key] = value

    def value(self, key: str) -> Any:
        """Return the value of an instance; None if it has none."""
        raw = self.raw_value(key)
        return None if raw is None else _decode(raw)

    def raw_value(self, key: str) -> bytes | None:
        """Return the same as JSON."""
        found = self._values.get(key) or self.changed_values.get(key)
        if found is None:
            found = self._read_value(key)
            if found is not None:
                self._values[key] = found
        return found

    def drop_values(self, prefix: str) -> None:
        """Values of instances that cannot be named any more need not be in memory."""
        for key in [key for key in self._values if key.startswith(prefix)]:
            del self._values[key]


def _add(total: model.Counts, before: Record | None, now: Record) -> model.Counts:
    """Return counts with those of a job that is over now."""
    old = model.Counts() if before is None else before.counts
    if now.counts == old:
        return total
    return model.Counts(
        **{
            name: getattr(total, name) + getattr(now.counts, name) - getattr(old, name)
            for name in model.Counts.__struct_fields__
        }
    )


def step_path(key: str) -> str:
    """Return the path of an instance's step, without numbers of rounds: `solve.iterate`."""
    if "[" not in key:
        return key
    section, dot, rest = key.partition(".")
    if section.startswith("catch["):
        return f"{section}{dot}{_ROUND.sub('', rest)}"
    return _ROUND.sub("", key)


def is_within(key: str, outer: str) -> bool:
    """Return whether an instance is part of another one, or the same."""
    return not outer or key == outer or (key.startswith(outer) and key[len(outer)] in ".[")
