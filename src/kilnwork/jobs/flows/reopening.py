"""Reopening of a run that has failed: decides which step instances continue, and which begin again.

No I/O. Used by `flow_service`. Instances that succeeded or were skipped are unchanged, with
everything inside them; so are the branches that a fork did not need. `catch` and `finally` are run
again at the next end of the run.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kilnwork.jobs.flows import live_run_state, run_types

_S = run_types.InstanceState

ENDS = frozenset({run_types.FlowPhase.FAILED, run_types.FlowPhase.KILLED})
"""Phases of runs that can be retried."""


class Reopening(NamedTuple):
    """The step instances to run again, by key, in the order in which they began."""

    again: dict[str, int]
    """Instances that continue, with the minimum run number of the job of each; 1 if it has no
    job."""
    restarted: tuple[str, ...]
    """Instances whose records are deleted, so that they begin again."""


def find_reopening(run: live_run_state.Run, job_run: Callable[[str], int | None]) -> Reopening:
    """Return the step instances that are to run again.

    `job_run` returns the run number of an instance's job, or None if the instance has no job.
    """
    around = {outer for key in run.records for outer in _containers(run, key)}
    again: dict[str, int] = {}
    restarted: list[str] = []
    for key, record in run.records.items():
        if key.startswith(("catch[", "finally.")):
            restarted.append(key)
        elif record.state in (_S.FAILED, _S.KILLED) and not _is_settled(run, key):
            before = job_run(key) if record.job else 0
            if before is None or not (record.job or key in around):
                restarted.append(key)  # it failed before it had a job or inner instances
            else:
                again[key] = before + 1
    return Reopening(again, tuple(restarted))


def apply_reopening(
    run: live_run_state.Run, found: Reopening, *, run_number: int, now: float
) -> None:
    """Change the records of a run so that these instances run again."""
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
                counts=run_types.TaskCounts(),
            )
        )
    run.ends.clear()
    run.late.clear()
    run.state = live_run_state.RunState(
        started=run.state.started,
        made=run.state.made,
        version=run.state.version,
        run=run_number,
        resumed=now,
    )
    run.dirty = True


def _is_settled(run: live_run_state.Run, key: str) -> bool:
    """Return whether an instance is within another instance that does not run again."""
    states = (run.records[outer].state for outer in _containers(run, key))
    return any(state not in (_S.FAILED, _S.KILLED) for state in states)


def _containers(run: live_run_state.Run, key: str) -> Iterator[str]:
    """Yield the keys of the instances that contain an instance."""
    for end, letter in enumerate(key):
        if letter in ".[" and key[:end] in run.records:
            yield key[:end]
