"""What a job does next: facts in, steps out. Pure: no clock, no disk, no dispatcher.

Used by the engine and `facts`. `next_steps` says what is to be done as things are, and may be asked
at any time: what is under way is not asked for again, and what is done is not done twice. The
functions of `facts` take in what has happened. A part is closed by its commit record and by nothing
else; the job by the record of part 0, which it makes itself when it is to end without a result. So
after a crash anywhere the same steps follow from journal and store.
"""

from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.jobs import model, records, steps

_O = filejobs.Outcome
_R = model.Reason
_S = records.State
_Stage = records.Stage


class Room(NamedTuple):
    """What a job may take: `window`: parts with a task at once, unless it says itself; `slots`: of
    its cluster, 0 when there are none at the moment; `begin`: it may be stored, to begin soon."""

    window: int
    slots: int
    begin: bool


def next_steps(job: records.Job, room: Room, now: float) -> list[steps.Step]:
    """What to do now; nothing of it is under way."""
    found: list[steps.Step] = []
    before = None
    while before is not job.stage and not found:
        before = job.stage
        _look(job, found, room, now)
    return found


def _look(job: records.Job, found: list[steps.Step], room: Room, now: float) -> None:
    """One look; without steps, but with another stage, there may be more to do."""
    if job.stage is _Stage.OVER:
        if job.deleting:
            _once(job, found, steps.Purge())
    elif not job.stored:
        if job.stage is _Stage.STOPPING and job.fresh and not (job.busy or job.seats):
            _end(job, now)  # nothing of it was ever anywhere
        elif room.begin:
            _once(job, found, steps.Store())
    elif not job.recovered:
        _once(job, found, steps.Recover())
    elif job.concluded is not None and job.stage is not _Stage.STOPPING:
        _follow_record(job, job.concluded, now)
    elif job.stage is _Stage.MAPPING:
        _map(job, found, room, now)
    elif job.stage is _Stage.REDUCING:
        _reduce(job, found)
    else:
        _stop(job, found, now)


def stop(
    job: records.Job, outcome: filejobs.Outcome, reason: str, message: str, *, now: float
) -> None:
    """It is to end so; no part of it will be mapped any more."""
    job.stage = _Stage.STOPPING
    job.verdict, job.reason, job.message = outcome, reason, message
    if not job.fresh:
        job.recovered = False  # tasks of an earlier service that are over may need a record
    job.dirty = True
    job.changed(now)


def _once(job: records.Job, found: list[steps.Step], step: steps.Step, number: int = 0) -> None:
    key = (type(step).__name__, number)
    if key not in job.busy:
        job.busy.add(key)
        found.append(step)


def _map(job: records.Job, found: list[steps.Step], room: Room, now: float) -> None:
    for part in sorted(job.over):
        ended = job.seats[part].ended
        if ended is not None:
            _settle(job, found, part, ended)
    doom = _doom(job)
    if doom is not None:
        stop(job, _O.FAILED, *doom, now=now)
        _stop(job, found, now)
    elif job.counts.closed < job.size:
        _seat(job, found, room)
    elif not job.seats:
        _all_closed(job, found, now)


def _all_closed(job: records.Job, found: list[steps.Step], now: float) -> None:
    lost = job.counts.failed + job.counts.cancelled
    if lost:
        which = f"{lost} of {job.size} parts" if job.size > 1 else "its only part"
        message = f"{which} failed: {job.first_failure or 'see its parts'}"
        stop(job, _O.FAILED, _R.PARTS_FAILED, message, now=now)
        _stop(job, found, now)
        return
    job.stage = _Stage.REDUCING
    job.dirty = True
    job.changed(now)
    _reduce(job, found)


def _settle(job: records.Job, found: list[steps.Step], part: int, ended: records.Ended) -> None:
    """Its task is over: what does the record say? One that succeeded has made it; else we do."""
    run = job.run_of(part)
    if ended.state is api_task.State.SUCCESS:
        _once(job, found, steps.Settle(part, run, None, ""), part)
    else:
        message = ended.message or ended.reason
        if ended.state is api_task.State.KILLED:
            message = f"its task was killed: {message}"
        _once(job, found, steps.Settle(part, run, _O.FAILED, message), part)


def _doom(job: records.Job) -> tuple[str, str] | None:
    """Why it cannot succeed any more, although parts are open; None: it can."""
    spec, counts = job.spec, job.counts
    bad, most = counts.failed_records, spec.max_failed_records
    if most is not None and bad > most:
        return _R.TOO_MANY_BAD_RECORDS, f"{bad} records are bad, maxFailedRecords is {most}"
    lines, share = job.manifest.lines, spec.max_failed_percent
    if share is not None and bad * 100 > share * lines:
        message = f"{bad} of {lines} records are bad, maxFailedPercent is {share:g}"
        return _R.TOO_MANY_BAD_RECORDS, message
    if counts.closed == job.size:
        return None
    if counts.failed and spec.bad_records is filejobs.BadRecords.FAIL:
        return _R.PART_FAILED, job.first_failure
    if spec.max_crashes and not job.successes and counts.failed >= spec.max_crashes:
        message = (
            f"{counts.failed} parts failed before any succeeded, maxCrashes is "
            f"{spec.max_crashes}; {job.first_failure}"
        )
        return _R.MAPPER_CRASHES, message
    return None


def limit(job: records.Job, room: Room) -> int:
    """How many seats may work at once. Before anything has worked, only so many as there are slots
    or as may crash: a mapper that always fails must not run for every part."""
    if job.spec.suspend:
        return 0
    most = job.spec.parallelism or room.window
    if job.spec.max_crashes and not job.successes:
        most = min(most, max(room.slots, job.spec.max_crashes - job.counts.failed))
    return most


def _seat(job: records.Job, found: list[steps.Step], room: Room) -> None:
    """Hand out seats, or hold back those that are more than is wanted and have not begun. In a
    pause all are held: what runs goes on, but after a loss it waits too."""
    if job.spec.suspend:
        loose = (n for n, seat in job.seats.items() if not (seat.held or seat.ended))
        _hold(job, found, tuple(loose), held=True)
        return
    working = len(job.seats) - len(job.held)
    wanted = job.spec.parallelism
    if wanted is not None and working > wanted:
        idle = [n for n, seat in job.seats.items() if not (seat.active or seat.held or seat.ended)]
        _hold(job, found, tuple(idle[wanted - working :]), held=True)
        return
    free = max(limit(job, room) - working, 0)
    if free and job.held:
        first = sorted(job.held, key=lambda part: (not job.seats[part].active, part))
        again = tuple(first[:free])
        free -= len(again)
        _hold(job, found, again, held=False)
    parts: list[int] = []
    while job.waiting and len(parts) < free:
        part = job.waiting.popleft()
        if job.states[part] == _S.OPEN:
            take_seat(job, part)
            parts.append(part)
    if parts:
        found.append(steps.Submit(tuple(parts)))


def take_seat(job: records.Job, part: int) -> records.Seat:
    """It has a task from now on."""
    if part:
        job.states[part] = _S.SEATED
    seat = job.seats[part] = records.Seat()
    return seat


def _hold(job: records.Job, found: list[steps.Step], parts: tuple[int, ...], *, held: bool) -> None:
    for part in parts:
        job.seats[part].held = held
    if held:
        job.held.update(parts)
    else:
        job.held.difference_update(parts)
    if parts:
        found.append(steps.Hold(parts, held))


def _reduce(job: records.Job, found: list[steps.Step]) -> None:
    if job.alone:
        _once(job, found, steps.Publish())
        return
    seat = job.seats.get(0)
    if seat is None:
        take_seat(job, 0)
        found.append(steps.Submit((0,)))
    elif seat.ended is not None:
        _settle(job, found, 0, seat.ended)


def _follow_record(job: records.Job, record: filejobs.Commit, now: float) -> None:
    """The job has ended, says the store: the tables have not heard of it yet."""
    if record.outcome is _O.SUCCEEDED and job.counts.succeeded == job.size:
        _end(job, now)
    else:
        reason = _R.REDUCER_FAILED if job.stage is _Stage.REDUCING else _R.ENDED
        stop(job, record.outcome, reason, record.message, now=now)


def _stop(job: records.Job, found: list[steps.Step], now: float) -> None:
    """First the record that the job ends so; then nothing of it may run or commit any more."""
    verdict = job.verdict or _O.CANCELLED
    if job.concluded is None:
        _once(job, found, steps.Conclude(verdict, job.message))
        return
    kill = []
    for part, seat in list(job.seats.items()):
        if part and job.states[part] == _S.SEATED:
            step = steps.Settle(part, job.run_of(part), _O.CANCELLED, "the job was stopped")
            _once(job, found, step, part)
        elif seat.ended is not None:
            leave_seat(job, part)
            continue
        if seat.ended is None and not seat.killed:
            seat.killed = True
            kill.append(part)
    if kill:
        found.append(steps.Kill(tuple(kill), job.message or "the job was stopped"))
    if job.seats or job.busy:
        return
    _end(job, now)


def leave_seat(job: records.Job, part: int) -> None:
    """Its task is over, and what that means is known."""
    seat = job.seats.pop(part, None)
    if seat is not None:
        job.active -= seat.active
        job.held.discard(part)
        job.over.discard(part)


def _warning(counts: filejobs.Records) -> tuple[str, str]:
    """What people should know of a job that has succeeded."""
    if counts.succeeded or not counts.failed:
        return "", ""
    which = f"all {counts.failed} records are" if counts.failed > 1 else "its only record is"
    message = (
        f"{which} bad, so the result is empty. /errors says why of each; with maxFailedPercent or "
        "badRecords=fail such a job fails"
    )
    return _R.ALL_RECORDS_BAD, message


def _end(job: records.Job, now: float) -> None:
    """Nothing of it runs any more, nothing will."""
    record = job.concluded
    if record is not None:
        job.verdict = record.outcome
        if record.outcome is _O.SUCCEEDED:
            job.output, job.errors = record.output, record.errors
            job.reason, job.message = _warning(job.counts.records)
    open_parts = [n for n in range(1, job.size + 1) if job.states[n] == _S.OPEN]
    for part in open_parts:
        job.states[part] = _S.CANCELLED
    job.counts.cancelled += len(open_parts)
    job.stage = _Stage.OVER
    for part in list(job.seats):  # of a reducer that has published, and has not said so yet
        leave_seat(job, part)
    job.waiting.clear()
    job.end(now)
    job.changed(now)
