"""Random stories of one file job: its steps are carried out late, out of order, or lost in a crash.

Used by tests of `jobs.step_planning` and `jobs.transitions`. Nothing waits or writes here: the
store is a dict of commit records, the journal a dict of tasks, a row and pages. Workers are killed,
paused and wake late; users cancel, pause and redrive.
"""

import random
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.data.stores import local
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import (
    errors,
    file_item_source,
    file_job_types,
    item_source,
    item_states,
    live_job_state,
    plan_steps,
    rows,
    step_planning,
    transitions,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

_O = filejobs.PartOutcome
_S = api_task.State
_ORDERS = (plan_steps.Submit, plan_steps.Suspend, plan_steps.Kill)
LINES = 3

SOURCES = file_item_source.FileSources(
    local.LocalStore(Path("/nowhere")),
    worker_url=None,
    opened=lambda url: local.LocalStore(Path("/nowhere")),
    clock=clocks.SystemClock(),
)
"""Their store is never used."""


class Task:
    """A task of the journal."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.state = _S.PENDING
        self.attempt = 0
        self.suspended = False

    def change(self) -> subscriptions.Change:
        return subscriptions.Change(
            ids.TaskId(bytes(16)), self.run, self.state, "", "why", self.attempt, 0, 0, "w", None,
            self.suspended,
        )  # fmt: skip


class Story:
    """One job of `parts` parts. Once `calm` is set, nothing fails any more."""

    def __init__(self, dice: random.Random, *, parts: int) -> None:
        self.dice = dice
        self.now = 1000.0
        self.calm = False
        self.commits: dict[tuple[int, int], filejobs.Commit] = {}
        self.tasks: dict[int, Task] = {}
        self.zombies: list[tuple[int, int]] = []
        self.under_way: list[tuple[plan_steps.Step, Any]] = []
        self.log: list[str] = []
        self.pages: dict[int, bytes] = {}
        self.manifest = manifest = filejobs.Manifest(
            format=filejobs.Format.JSONL,
            bytes=parts * 10,
            lines=parts * LINES,
            sha256="",
            parts=tuple(
                filejobs.Part(n + 1, n * 10, n * 10 + 10, n * LINES + 1, LINES, 0)
                for n in range(parts)
            ),
        )
        spec = filejobs.FileJobSpec(
            max_crashes=0, parallelism=dice.choice([None, 1, 3]), suspend=dice.random() < 0.1
        )
        file_item_source.check_spec(spec, manifest)
        self.job = live_job_state.Job(
            file_job_types.JobId(bytes(16), "job"), row=1, namespace="ns", spec=spec,
            source=SOURCES.new(spec, manifest, source=None), created=self.now,
        )  # fmt: skip
        self.job.fresh = True
        self.row = rows.JobRow._make(rows.new_job_row(self.job, None))

    def look(self) -> None:
        """Run one round of the service: store changes and start the steps that are due."""
        room = step_planning.TaskRoom(
            self.dice.choice([1, 4, 256]), self.dice.choice([0, 2]), prepare=True
        )
        found = step_planning.next_steps(self.job, room, self.now)
        if self.job.dirty or self.job.items.changed_pages:
            self._keep()
        for step in found:
            self.log.append(str(step))
            if isinstance(step, plan_steps.Recover):
                every = self.job.stage is live_job_state.Stage.STOPPING
                known = [n for n in transitions.find_recoverable(self.job) if n in self.tasks]
                left = [n for n in known if every or not self.tasks[n].state.final]
                self.under_way.append((step, left))
            else:
                self.under_way.append((step, None))
        self.check()

    def _keep(self) -> None:
        self.row = rows.JobRow._make(rows.new_job_row(self.job, None))
        for page in self.job.items.changed_pages:
            self.pages[page] = self.job.items.page(page)
        self.job.items.changed_pages.clear()
        self.job.dirty = False

    def crash(self) -> None:
        """Kill the service: steps under way are lost, and a new service reads the row."""
        self.log.append("crash")
        self.under_way.clear()
        self.job = rows.to_job(self.row, SOURCES, msgspec.json.encode(self.manifest))
        for page, packed in self.pages.items():
            self.job.items.load_page(page, packed)

    def happen(self) -> None:
        """Let one random possible event happen."""
        self.now += 0.5
        kinds = [self._carry_out, self._work, self._work, self.look]
        if not self.calm:
            kinds += [self._disturb]
        self.dice.choice(kinds)()

    def _disturb(self) -> None:
        name = self.dice.choices(
            ("crash", "zombie", "kill", "cancel", "pause", "resume", "redrive"),
            (6, 8, 2, 1, 2, 3, 2),
        )[0]
        self.log.append(name)
        if name == "crash":
            self.crash()
        elif name == "zombie" and self.zombies:
            self._commit(*self.zombies.pop(), _O.SUCCEEDED)
        elif name == "kill" and self.tasks:
            self._end(self.dice.choice(list(self.tasks)), _S.KILLED)
        elif name == "cancel":
            transitions.cancel(self.job, "", now=self.now)
        elif name in ("pause", "resume") and self.job.stage is not live_job_state.Stage.FINISHED:
            transitions.adjust(
                self.job, file_job_types.Adjustment(suspend=name == "pause"), now=self.now
            )
        elif name == "redrive":
            self.redrive()
        self.look()

    def resume(self) -> None:
        """Resume the job for good: no user pauses it after this."""
        if self.job.stage is not live_job_state.Stage.FINISHED:
            transitions.adjust(self.job, file_job_types.Adjustment(suspend=False), now=self.now)

    def redrive(self) -> None:
        try:
            transitions.redrive(self.job, now=self.now)
        except errors.NotNow:
            return

    def _work(self) -> None:
        open_ = [n for n, task in self.tasks.items() if not task.state.final]
        if not open_:
            return
        part = self.dice.choice(open_)
        task = self.tasks[part]
        if task.state is _S.PENDING:
            if not task.suspended:
                task.state = _S.RUNNING
                task.attempt += 1
                self._tell(part)
            return
        odds = 0.0 if self.calm else self.dice.random()
        if odds < 0.7:
            self._commit(part, task.run, _O.SUCCEEDED)
            self._end(part, _S.SUCCESS)
        elif odds < 0.8:
            self.zombies.append((part, task.run))  # it was paused, taken for lost, and will wake
            task.state = _S.PENDING
            self._tell(part)
        elif odds < 0.9:
            self._end(part, _S.FAILED)
        elif odds < 0.95:
            self._commit(part, task.run, _O.FAILED)
            self._end(part, _S.SUCCESS)
        else:
            self._end(part, _S.SUCCESS)

    def _end(self, part: int, state: api_task.State) -> None:
        task = self.tasks[part]
        if not task.state.final:
            if state is _S.KILLED and task.state is _S.RUNNING:
                self.zombies.append((part, task.run))
            task.state = state
            self._tell(part)

    def _tell(self, part: int) -> None:
        transitions.apply_task_change(self.job, part, self.tasks[part].change(), now=self.now)

    def _commit(self, part: int, run: int, outcome: filejobs.PartOutcome) -> filejobs.Commit:
        found = self.commits.get((part, run))
        if found is None:
            count = LINES if outcome is _O.SUCCEEDED else 0
            found = filejobs.Commit(
                part=part, run=run, attempt=1, outcome=outcome,
                records=filejobs.Records(total=count, succeeded=count),
            )  # fmt: skip
            self.commits[part, run] = found
        return found

    def _carry_out(self) -> None:
        """Finish one of the steps under way."""
        if not self.under_way:
            return
        at = self.dice.randrange(len(self.under_way))
        if isinstance(self.under_way[at][0], _ORDERS):  # given in their order
            at = next(n for n, (one, _) in enumerate(self.under_way) if isinstance(one, _ORDERS))
        step, more = self.under_way.pop(at)
        if isinstance(step, _ORDERS):
            self._order(step)
        elif isinstance(step, plan_steps.Prepare):
            transitions.record_prepared(self.job, now=self.now)
        elif isinstance(step, plan_steps.Recover):
            self._recover(more)
        else:
            self._settle(step)

    def _order(self, step: plan_steps.Submit | plan_steps.Suspend | plan_steps.Kill) -> None:
        if isinstance(step, plan_steps.Submit):
            for part in step.items:
                self._submit(part)
        elif isinstance(step, plan_steps.Suspend):
            for part in step.items:
                if part in self.tasks:
                    self.tasks[part].suspended = step.suspended
                    self._tell(part)
        else:
            for part in step.items:
                if part in self.tasks:
                    self._end(part, _S.KILLED)

    def _settle(self, step: plan_steps.Step) -> None:
        if not isinstance(step, plan_steps.Settle):
            return
        if not step.item:
            commit = self._commit(0, step.run, step.outcome or _O.FAILED)
            transitions.apply_job_result(self.job, self._result(commit), now=self.now)
            return
        found = self.commits.get((step.item, step.run))
        if found is None and step.outcome is not None:
            found = self._commit(step.item, step.run, step.outcome)
        result = None if found is None else self._result(found)
        transitions.apply_result(self.job, step.item, step.run, result, now=self.now)

    def _result(self, commit: filejobs.Commit) -> item_source.ItemResult:
        source = self.job.source
        assert isinstance(source, file_item_source.FileItems)
        return source.to_item_result(commit)

    def _recover(self, left: list[int]) -> None:
        runs = {
            n: self.job.run_of(n)
            for n in range(self.job.size + 1)
            if n == 0 or self.job.items.states[n] < item_states.ItemState.SUCCEEDED
        }
        found = [
            self._result(self.commits[key]) for key in self.commits if runs.get(key[0]) == key[1]
        ]
        changes = [(n, self.tasks[n].change()) for n in left]
        transitions.record_recovered(self.job, found, changes, now=self.now)

    def _submit(self, part: int) -> None:
        run = self.job.run_of(part)
        known = self.tasks.get(part)
        if known is not None and known.run < run and not known.state.final:
            known.state = _S.KILLED
        elif known is None or known.run < run:
            self.tasks[part] = Task(run)
        self._tell(part)

    def check(self) -> None:
        job = self.job
        counts = job.counts
        assert counts.closed <= job.size
        assert counts.succeeded == sum(
            job.items.states[n] == item_states.ItemState.SUCCEEDED for n in range(1, job.size + 1)
        )
        found = job.source.progress.records
        assert found.total == found.succeeded == counts.succeeded * LINES
        assert job.active == sum(task.active for n, task in job.tasks.items() if n)
        view = rows.view(job)
        assert view.parts.pending >= 0
        for number in range(1, job.size + 1):
            if job.items.states[number] == item_states.ItemState.SUCCEEDED:
                record = self.commits[number, job.run_of(number)]
                assert record.outcome is _O.SUCCEEDED, (number, self.log[-12:])
        if job.stage is live_job_state.Stage.FINISHED:
            self.check_end()

    def check_end(self) -> None:
        job = self.job
        assert job.counts.closed == job.size
        assert not job.tasks
        if job.verdict is _O.SUCCEEDED:
            assert job.counts.succeeded == job.size, self.log[-12:]
            assert self.commits[0, job.run].outcome is _O.SUCCEEDED
        else:
            ended = self.commits.get((0, job.run))
            assert ended is None or ended.outcome is job.verdict
            lost = {
                number
                for (number, run), commit in self.commits.items()
                if number and run == job.run_of(number) and commit.outcome is _O.SUCCEEDED
                if job.items.states[number] != item_states.ItemState.SUCCEEDED
            }
            assert not lost, f"committed, but not counted: {lost} {self.log[-30:]}"
