"""What has happened to a job: facts that change its record. Pure; `plan` says what follows.

Used by the service and the engine, which tell of tasks that moved, steps that are done, and what
people want. Each may come twice, late, or from before a crash: what does not fit any more changes
nothing.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.data import errors as data_errors
from kilnwork.data.records import manifests
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import errors, model, plan, records

_O = filejobs.Outcome
_S = records.State
_Stage = records.Stage

MOST_SPEC_BYTES = 128 * 1024
"""It goes to the worker with each part; a task may have 768 KiB."""

_encode = msgspec.json.Encoder().encode

MOST_REOPENINGS = 3
"""Times that a part's task may succeed without a commit record before the part has failed."""


def check(spec: filejobs.JobSpec, manifest: filejobs.Manifest) -> None:
    """Parts follow each other without gap or overlap, and hold all that there is. Raises
    `InvalidJob`."""
    try:
        manifests.checked(manifest)
    except data_errors.ManifestDamaged as error:
        raise errors.InvalidJob(f"manifest: {error}; upload the input again") from error
    size = len(_encode((spec, manifest.header)))
    if size > MOST_SPEC_BYTES:
        raise errors.InvalidJob(
            f"spec: it takes {size} bytes with the names of columns; at most {MOST_SPEC_BYTES} are "
            "allowed. Put long programs into a file that workers have, or into code"
        )
    if len(manifest.parts) > filejobs.MAX_PARTS:
        raise errors.InvalidJob(
            f"manifest.parts: {len(manifest.parts)} parts; at most {filejobs.MAX_PARTS} are allowed"
        )
    if spec.input.format is not manifest.format:
        raise errors.InvalidJob(
            f"input.format: {spec.input.format.value}, but the input was read as "
            f"{manifest.format.value}"
        )


def done(job: records.Job, step: str, number: int = 0) -> None:
    """A step is not under way any more, whether or not it worked."""
    job.busy.discard((step, number))


def stored(job: records.Job, *, now: float) -> None:
    """Its folder has all that a worker needs."""
    done(job, "Store")
    job.stored = True
    job.dirty = True
    if job.fresh:
        job.recovered = True  # nobody has worked on it before
    job.changed(now)


def recovered(
    job: records.Job,
    commits: Iterable[filejobs.Commit],
    changes: Iterable[tuple[int, subscriptions.Change]],
    *,
    now: float,
) -> None:
    """What an earlier service has left: commit records, and tasks that are not over."""
    done(job, "Recover")
    job.recovered = True
    for commit in commits:
        if commit.part == 0:
            if commit.run == job.run:
                job.concluded = commit
        elif commit.run == job.run_of(commit.part) and job.states[commit.part] < _S.SUCCEEDED:
            close(job, commit)
    for part, change in changes:
        wanted = part == 0 or job.states[part] == _S.OPEN or job.stage is _Stage.STOPPING
        if wanted and part not in job.seats:
            if part and job.states[part] == _S.OPEN:
                job.states[part] = _S.SEATED
            seat = job.seats[part] = records.Seat()
            seat.failures, seat.losses = change.failures, change.losses  # counted before
            moved(job, part, change, now=now)
    job.changed(now)


def moved(job: records.Job, part: int, change: subscriptions.Change, *, now: float) -> None:
    """The task of a seat is in another state."""
    seat = job.seats.get(part)
    if seat is None or seat.ended is not None:
        return
    if change.run < job.run_of(part):
        if change.over:  # it made room for ours, which is to be submitted again
            plan.leave_seat(job, part)
            if part and job.states[part] == _S.SEATED:
                open_again(job, part)
        return
    if change.run > job.run_of(part):
        _adopt_run(job, part, change.run)
    if (change.failures, change.losses) != (seat.failures, seat.losses):
        job.failures += change.failures - seat.failures
        job.loss_count += change.losses - seat.losses
        job.dirty = True
    seat.failures, seat.losses = change.failures, change.losses
    seat.attempt, seat.worker, seat.started = change.attempt, change.worker, change.started
    seat.message = change.message or change.reason
    if change.suspended != seat.held:
        seat.held = change.suspended
        (job.held.add if seat.held else job.held.discard)(part)
    active = change.active
    if part and job.states[part] == _S.SEATED:
        job.active += active - seat.active
        seat.active = active
    if active and job.started is None:
        job.started = now
        job.dirty = True
    if change.over:
        seat.ended = records.Ended(change.state, change.reason, change.message)
        job.held.discard(part)
        job.over.add(part)
    job.changed(now)


def _adopt_run(job: records.Job, part: int, run: int) -> None:
    """The tables are older than the task (they were filled from the store)."""
    job.run = max(job.run, run)
    if part:
        job.runs[part] = run
        job.dirty_parts[part] = None
    job.dirty = True


def open_again(job: records.Job, part: int) -> None:
    """It waits for a seat, before all others."""
    job.states[part] = _S.OPEN
    job.waiting.appendleft(part)


def settled(
    job: records.Job, part: int, run: int, commit: filejobs.Commit | None, *, now: float
) -> None:
    """How a run of a part ended; None: its task succeeded, and there is no record."""
    done(job, "Settle", part)
    if run != job.run_of(part) or job.states[part] >= _S.SUCCEEDED:
        return
    if job.stage is _Stage.MAPPING:
        if commit is None:
            _vanished(job, part, now=now)
            return
        plan.leave_seat(job, part)
    if commit is not None:
        close(job, commit)
    job.changed(now)


def _vanished(job: records.Job, part: int, *, now: float) -> None:
    """Success of a task proves nothing: the part is open again, in a run of its own."""
    times = job.reopened[part] = job.reopened.get(part, 0) + 1
    if times > MOST_REOPENINGS:
        message = f"its task succeeded {times} times without a commit record"
        job.seats[part].ended = records.Ended(api_task.State.FAILED, "NoCommit", message)
        return
    plan.leave_seat(job, part)
    open_again(job, part)
    _new_run(job, (part,))
    job.changed(now)


def _new_run(job: records.Job, parts: Iterable[int]) -> None:
    """Commits of the run before do not count any more. The store is told before it begins."""
    job.run += 1
    for part in parts:
        job.runs[part] = job.run
        job.dirty_parts[part] = None
    job.stored = False
    job.dirty = True


def _checked(job: records.Job, commit: filejobs.Commit) -> filejobs.Commit:
    """A part whose records do not add up has failed, whatever it says."""
    found, part = commit.records, job.part(commit.part)
    total = found.succeeded + found.failed + found.skipped
    if commit.outcome is not _O.SUCCEEDED or total == found.total == part.lines:
        return commit
    message = (
        f"{part.lines} records, but {found.succeeded} succeeded, {found.failed} failed and "
        f"{found.skipped} were skipped: a mapper of another version?"
    )
    return msgspec.structs.replace(commit, outcome=_O.FAILED, message=message)


def close(job: records.Job, commit: filejobs.Commit) -> None:
    """A part is over, for good."""
    commit = _checked(job, commit)
    part, found, counts = commit.part, commit.records, job.counts
    seat = job.seats.get(part)
    if seat is not None and seat.active:
        seat.active = False
        job.active -= 1
    job.runs[part] = commit.run
    job.dirty_parts[part] = commit
    job.dirty = True
    state = records.BY_OUTCOME[commit.outcome]
    job.states[part] = state
    if state is _S.SUCCEEDED:
        counts.succeeded += 1
        counts.succeeded_records += found.succeeded
        counts.failed_records += found.failed
        counts.skipped_records += found.skipped
        counts.bytes += job.part(part).end - job.part(part).start
        job.successes += 1
    elif state is _S.FAILED:
        counts.failed += 1
        if not job.first_failure:
            job.first_failure = f"part {part}: {commit.message}"[:2000]
    else:
        counts.cancelled += 1


def _reopen(job: records.Job, part: int, commit: filejobs.Commit) -> None:
    """A part that had succeeded is to be done anew."""
    counts, found = job.counts, commit.records
    counts.succeeded -= 1
    counts.succeeded_records -= found.succeeded
    counts.failed_records -= found.failed
    counts.skipped_records -= found.skipped
    counts.bytes -= job.part(part).end - job.part(part).start
    open_again(job, part)


def damaged(job: records.Job, commits: Iterable[filejobs.Commit], *, why: str, now: float) -> None:
    """What these parts had made cannot be used: they are mapped anew, then reduced anew."""
    done(job, "Settle", 0)
    done(job, "Publish")
    plan.leave_seat(job, 0)
    if job.stage is not _Stage.REDUCING:
        return
    parts = []
    for commit in commits:
        part = commit.part
        if job.states[part] == _S.SUCCEEDED:
            _reopen(job, part, commit)
            parts.append(part)
            job.reopened[part] = job.reopened.get(part, 0) + 1
    _new_run(job, parts)
    worst = max(parts, key=lambda part: job.reopened[part], default=0)
    if job.reopened.get(worst, 0) > MOST_REOPENINGS:
        message = f"the result of part {worst} was damaged {MOST_REOPENINGS + 1} times: {why}"
        plan.stop(job, _O.FAILED, model.Reason.RESULT_DAMAGED, message, now=now)
        return
    job.stage = _Stage.MAPPING
    job.changed(now)


def concluded(job: records.Job, record: filejobs.Commit, *, now: float) -> None:
    """The record of the job's run is there; whoever made it."""
    for step in ("Conclude", "Publish", "Settle"):
        done(job, step, 0)
    if record.run != job.run:
        return
    job.concluded = record
    seat = job.seats.get(0)
    if seat is not None and seat.ended is not None:
        plan.leave_seat(job, 0)
    job.changed(now)


def cancel(job: records.Job, message: str, *, now: float) -> None:
    """A person does not want it any more; over or ending already: nothing happens."""
    if job.stage in (_Stage.MAPPING, _Stage.REDUCING):
        plan.stop(job, _O.CANCELLED, model.Reason.CANCELLED, message or "cancelled", now=now)


def adjust(job: records.Job, change: model.Adjustment, *, now: float) -> None:
    """What may change while it is there; of a job that failed, for a redrive.

    Raises `NotNow`, `InvalidJob`.
    """
    given = {
        name: value
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if job.stage is _Stage.OVER:
        _check_over(job, set(given))
    spec = msgspec.structs.replace(job.spec, **given)
    try:
        msgspec.convert(msgspec.to_builtins(spec), filejobs.JobSpec)
    except msgspec.ValidationError as error:
        raise errors.InvalidJob(f"spec: {error}") from error
    job.spec = spec
    if job.finished is not None:
        job.end(job.finished)
    job.dirty = True
    job.changed(now)


def _check_over(job: records.Job, changed: set[str]) -> None:
    where = f"job {job.id.text} is {job.phase.value}"
    if "suspend" in changed:
        raise errors.NotNow(f"{where}: there is nothing to pause or to resume")
    if job.verdict is _O.SUCCEEDED and changed - {"ttl_seconds_after_finished"}:
        raise errors.NotNow(f"{where}: only ttlSecondsAfterFinished can be changed")


def redrive(job: records.Job, *, now: float) -> None:
    """What has not succeeded is done anew. Raises `NotNow`."""
    if job.stage is not _Stage.OVER or job.verdict is _O.SUCCEEDED or job.deleting:
        raise errors.NotNow(
            f"job {job.id.text} is {job.phase.value}: only a job that failed or was cancelled can "
            "be redriven"
        )
    again = [n for n in range(1, job.size + 1) if job.states[n] != _S.SUCCEEDED]
    job.run += 1
    job.base_run = job.run
    job.stage = _Stage.MAPPING
    job.verdict = job.concluded = job.finished = job.expires = None
    job.reason = job.message = job.trouble = job.first_failure = ""
    job.counts.failed = job.counts.cancelled = 0
    job.successes = 0
    job.stored = job.recovered = False
    job.spec = msgspec.structs.replace(job.spec, suspend=False)
    for part in again:
        job.states[part] = _S.OPEN
        job.runs.pop(part, None)
    job.waiting.clear()
    job.waiting.extend(again)
    job.reopened.clear()
    job.dirty = True
    job.changed(now)


def delete(job: records.Job, *, now: float) -> None:
    """It is gone for everybody; what runs is stopped first."""
    cancel(job, "deleted", now=now)
    job.deleting = True
    job.dirty = True
    job.changed(now)


def journal_lost(job: records.Job, *, now: float) -> None:
    """The journal knows none of its tasks, and will use the numbers of their attempts again: what
    is open goes on in another run."""
    job.run = job.base_run = job.run + 1
    for part in list(job.runs):
        if job.states[part] == _S.OPEN:
            job.runs[part] = job.run
            job.dirty_parts[part] = None
    job.stored = False
    job.dirty = True
    job.changed(now)
