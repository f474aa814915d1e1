"""What runs again of a run that has failed: which instances go on, and which begin again. Pure.

Used by `runs`. What succeeded or was skipped stays as it is, with all that is in it, and so do
branches that a fork did not need. `catch` and `finally` belong to an end: the next one has its own.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kilnwork.jobs.flows import model, records

_S = model.InstanceState

ENDS = frozenset({model.Phase.FAILED, model.Phase.KILLED})
"""Of runs that can be retried."""


class Reopening(NamedTuple):
    """Keys of instances, in the order in which they began."""

    again: dict[str, int]
    """Those that go on, with the run in which the job of each is to be; 1: it has none."""
    restarted: tuple[str, ...]
    """Those that are forgotten."""


def find(run: records.Run, job_run: Callable[[str], int | None]) -> Reopening:
    """Return what is to run again. `job_run`: in which run the job of an instance is, None if
    there is none."""
    around = {outer for key in run.records for outer in _around(run, key)}
    again: dict[str, int] = {}
    restarted: list[str] = []
    for key, record in run.records.items():
        if key.startswith(("catch[", "finally.")):
            restarted.append(key)
        elif record.state in (_S.FAILED, _S.KILLED) and not _is_settled(run, key):
            before = job_run(key) if record.job else 0
            if before is None or not (record.job or key in around):
                restarted.append(key)  # it failed before it had anything
            else:
                again[key] = before + 1
    return Reopening(again, tuple(restarted))


def begin(run: records.Run, found: Reopening, *, run_number: int, now: float) -> None:
    """Have a run go on with that."""
    for key in found.restarted:
        run.drop(key)
    for key, job_run in found.again.items():
        record = run.records[key]
        run.put(
            msgspec.structs.replace(
                record,
                state=_S.RUNNING,
                started=now,
                finished=None,
                reason="",
                message="",
                cause="",
                open=record.job,
                job_run=job_run,
                counts=model.Counts(),
            )
        )
    run.ends.clear()
    run.late.clear()
    run.state = records.RunState(
        started=run.state.started,
        made=run.state.made,
        version=run.state.version,
        run=run_number,
        resumed=now,
    )
    run.dirty = True


def _is_settled(run: records.Run, key: str) -> bool:
    """Return whether an instance is part of one that does not run again."""
    states = (run.records[outer].state for outer in _around(run, key))
    return any(state not in (_S.FAILED, _S.KILLED) for state in states)


def _around(run: records.Run, key: str) -> Iterator[str]:
    """Yield the instances that an instance is part of."""
    for end, letter in enumerate(key):
        if letter in ".[" and key[:end] in run.records:
            yield key[:end]
