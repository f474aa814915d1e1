"""Reading of Job objects: phase, counts, times, and sentences about them.

Used by the commands about Jobs. No I/O: takes objects as the API server sends them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kilnwork.api import job as api_job
from kilnwork.cli import errors, wait_phases
from kilnwork.kit import clock

Item = Mapping[str, Any]

_FINAL = frozenset(phase.value for phase in api_job.Phase if phase.final)
_PHASES = {phase.lower(): phase for phase in api_job.Phase}


def status(found: Item) -> Mapping[str, Any]:
    return found.get("status") or {}


def spec(found: Item) -> Mapping[str, Any]:
    return found.get("spec") or {}


def phase(found: Item) -> str:
    """Return the phase of a Job, or "" before the manager has seen the Job."""
    return str(status(found).get("phase", ""))


def is_over(found: Item) -> bool:
    """Return whether the requested run of a Job has finished."""
    known = status(found)
    if phase(found) not in _FINAL:
        return False
    return int(known.get("run", 1)) >= int(spec(found).get("run", 1))


def config(found: Item) -> str:
    """Return the name of the JobConfig of a Job, or "" if it has none."""
    owners = found["metadata"].get("ownerReferences") or ()
    named = next((str(o["name"]) for o in owners if o["kind"] == "JobConfig"), "")
    return named or str(spec(found).get("configName") or "")


def counts(found: Item) -> api_job.Indexes:
    """Return the number of indexes of a Job in each state."""
    known = status(found).get("indexes") or {}
    return api_job.Indexes(
        total=int(known.get("total", 0)),
        succeeded=int(known.get("succeeded", 0)),
        failed=int(known.get("failed", 0)),
        running=int(known.get("running", 0)),
        failed_indexes=str(known.get("failedIndexes", "")),
    )


def indexes(found: Item) -> str | None:
    """Return succeeded and total indexes of a Job as `3/10` or `3/10 (2 failed)`.

    None while the number of indexes is unknown.
    """
    known = counts(found)
    if not known.total:
        return None
    failed = f" ({known.failed} failed)" if known.failed else ""
    return f"{known.succeeded}/{known.total}{failed}"


def seconds(text: object) -> float | None:
    """Return a timestamp of an object as seconds since the epoch, or None for one that is not
    set.
    """
    return clock.parse_rfc3339(str(text)) if text else None


def age_s(found: Item, *, now: float) -> float:
    made = seconds(found["metadata"].get("creationTimestamp"))
    return 0.0 if made is None else now - made


def took_s(found: Item, *, now: float) -> float | None:
    """Return the seconds from the start of a Job to its end, or until now; None before its
    start.
    """
    started = seconds(status(found).get("startTime"))
    ended = seconds(status(found).get("finishTime"))
    return None if started is None else (now if ended is None else ended) - started


def sentence(found: Item) -> str:
    """Return the state of a Job and its reason as a sentence without a full stop."""
    name, known = found["metadata"]["name"], status(found)
    if not phase(found):
        return f"Job {name} has not been processed yet"
    text = f"Job {name} is {phase(found)}"
    if known.get("reason") and known["reason"] != phase(found):
        text += f" ({known['reason']})"
    if known.get("message"):
        text += f": {str(known['message']).rstrip('.')}"
    total = counts(found).total
    if total > 1:
        text += f"; {counts(found).succeeded:,} of {total:,} indexes have succeeded"
    return text


def check_end(found: Item) -> None:
    """Raise `errors.TaskFailed` for a finished Job that has not succeeded."""
    if phase(found) != api_job.Phase.SUCCEEDED:
        raise errors.TaskFailed(f"{sentence(found)}. {hint(found)}")


def hint(found: Item) -> str:
    """Return advice on what to do about a Job that has not succeeded."""
    name = found["metadata"]["name"]
    if phase(found) == api_job.Phase.ADMISSION_ERROR:
        return f"It never ran: `kiln get job {name} -o yaml` shows the details"
    return (
        f"`kiln logs job/{name}` shows its output, "
        f"`kiln retry job/{name}` runs the other indexes again"
    )


def phase_of(text: str) -> api_job.Phase | None:
    """Return the Job phase that `phase=NAME`, `state=NAME` or `NAME` names, or None.

    Upper and lower case are not distinguished.
    """
    return wait_phases.find(text, _PHASES)


def test_of(wanted: str, name: str) -> Callable[[Item | None], bool] | None:
    """Return the test of `kiln wait --for` for the Job called `name`: a phase, or `final`.

    None if `wanted` is neither. The test raises `errors.Missing` if there is no such Job, and
    `errors.TaskFailed` if it has finished in another phase.
    """
    asked = phase_of(wanted)
    if asked is None and wanted != "final":
        return None

    return wait_phases.test_of(asked, name, phase=phase, is_over=is_over, sentence=sentence)
