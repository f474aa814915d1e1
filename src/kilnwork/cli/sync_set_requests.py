"""SyncSets on the command line: reading their status and requesting changes.

Used by the commands that take `syncset/NAME`: why, wait, logs, result, cancel, suspend,
resume, retry, replay.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kilnwork.api import kinds as api_kinds
from kilnwork.api import sync_set
from kilnwork.cli import errors, job_lookup, session, wait_phases
from kilnwork.kit import clock

Item = Mapping[str, Any]

SERVED = api_kinds.SYNC_SETS
_PHASES = {phase.lower(): phase for phase in sync_set.Phase}
_FINAL = frozenset(phase.value for phase in sync_set.Phase if phase.final)


def explicit_name(word: str) -> str | None:
    """Return the name in `syncset/NAME`, or None for other words."""
    return job_lookup.explicit_name(word, SERVED)


async def get(s: session.Session, name: str) -> dict[str, Any]:
    """Return the SyncSet of the given name. Raises `errors.Missing`."""
    return await job_lookup.get(s, name, SERVED)


def status(found: Item) -> Mapping[str, Any]:
    return found.get("status") or {}


def phase(found: Item) -> str:
    """Return the phase of a SyncSet, or "" before the manager has seen the SyncSet."""
    return str(status(found).get("phase", ""))


def is_over(found: Item) -> bool:
    """Return whether the requested run of a SyncSet's requested generation has finished."""
    spec, known = found["spec"], status(found)
    current = int(known.get("generation", 0)) >= int(spec.get("generation", 1))
    return phase(found) in _FINAL and current and int(known.get("run", 1)) >= _asked_run(found)


def _asked_run(found: Item) -> int:
    return int(found["spec"].get("run", 1))


def sentence(found: Item) -> str:
    """Return sentences about a SyncSet: its state, the reason, unmet conditions, and advice."""
    name, known = found["metadata"]["name"], status(found)
    if not phase(found):
        return f"SyncSet {name} has not been processed yet."
    text = f"SyncSet {name} is {phase(found)}"
    if known.get("reason") and known["reason"] != phase(found):
        text += f" ({known['reason']})"
    if known.get("message"):
        text += f": {str(known['message']).rstrip('.')}"
    if known.get("progress"):
        done, _, total = str(known["progress"]).partition("/")
        text += f"; {done} of {total} tasks have succeeded"
    for output, kept in (known.get("outputs") or {}).items():
        text += f"; output {output} has {kept.get('files', 0)} files, {kept['digest']}"
    text += "".join(_unmet(known))
    return f"{text}.{_hint(found)}"


def _unmet(known: Mapping[str, Any]) -> list[str]:
    """Return the conditions that prevent the flow from starting, beyond those in the reason."""
    if phase({"status": known}) in _FINAL:
        return []
    return [
        f"; {c['type']} is {c['status']} ({c['reason']})"
        + (f": {str(c['message']).rstrip('.')}" if c.get("message") else "")
        for c in known.get("conditions") or ()
        if c["type"] in ("SnapshotPinned", "DataReady", "GangReady")
        and c["status"] != "True"
        and c["reason"] != known.get("reason")
    ]


def _hint(found: Item) -> str:
    name = found["metadata"]["name"]
    if found["spec"].get("suspend") and not is_over(found):
        return f" `kiln resume syncset/{name}` resumes it."
    if phase(found) in ("Failed", "Killed"):
        generation = status(found).get("generation", 1)
        return (
            f" `kiln retry syncset/{name} --failed` runs the failed steps again, `kiln replay "
            f"{name} --generation {generation}` the whole generation on the same data."
        )
    return ""


def check_end(found: Item) -> None:
    """Raise `errors.TaskFailed` for a finished SyncSet that has not succeeded."""
    if phase(found) != sync_set.Phase.SUCCEEDED:
        raise errors.TaskFailed(sentence(found))


def phase_of(text: str) -> sync_set.Phase | None:
    """Return the SyncSet phase that `phase=NAME`, `state=NAME` or `NAME` names, or None.

    Upper and lower case are not distinguished.
    """
    return wait_phases.find(text, _PHASES)


def test_of(wanted: str, name: str) -> Callable[[Item | None], bool] | None:
    """Return the test of `kiln wait --for` for the SyncSet called `name`: a phase, or `final`.

    None if `wanted` is neither. The test raises `errors.Missing` if there is no such SyncSet, and
    `errors.TaskFailed` if it has finished in another phase.
    """
    asked = phase_of(wanted)
    if asked is None and wanted != "final":
        return None

    return wait_phases.test_of(asked, name, phase=phase, is_over=is_over, sentence=sentence)


async def suspend(s: session.Session, name: str, *, suspended: bool) -> str:
    """Suspend or resume a SyncSet and return the text to print.

    Raises CommandError if it has finished.
    """
    found = await get(s, name)
    if is_over(found) and not suspended and (found.get("spec") or {}).get("suspend"):
        await job_lookup.patch_spec(s, name, {"suspend": False}, SERVED)
        return resumed_ended(f"SyncSet {name}", phase(found), retry=f"syncset/{name}")
    if is_over(found):
        raise errors.CommandError(f"SyncSet {name} is already {phase(found)}")
    await job_lookup.patch_spec(s, name, {"suspend": suspended}, SERVED)
    return f"SyncSet {name} {'is suspended' if suspended else 'is resumed'}"


def resumed_ended(subject: str, state: str, *, retry: str) -> str:
    """Return the text to print after resuming an object that has already finished.

    It says that the object is no longer suspended, and how to retry it.
    """
    return (
        f"{subject} is already {state}, and is no longer suspended: `kiln retry {retry} "
        "--failed` runs again what failed"
    )


async def cancel(s: session.Session, name: str, at: str | None) -> str:
    """Stop the newest generation of a SyncSet, now or at a time, and return the text to print."""
    found = await get(s, name)
    if is_over(found):
        return f"SyncSet {name} is already {phase(found)}"
    change = {"killTimestamp": at or clock.rfc3339(s.clock.wall())}
    await job_lookup.patch_spec(s, name, change, SERVED)
    how = "is being stopped" if at is None else f"will be stopped at {at}"
    return f"SyncSet {name} {how}"


async def retry(s: session.Session, name: str) -> int:
    """Request a new run of the failed steps of a SyncSet's newest generation.

    Return the number of that run. Raises CommandError while the generation runs, for a
    generation that has succeeded or was not admitted, and for a suspended SyncSet.
    """
    found = await get(s, name)
    known, asked = status(found), _asked_run(found)
    if phase(found) in _FINAL and asked > int(known.get("run", 1)):
        return asked
    if not is_over(found):
        raise errors.CommandError(
            f"SyncSet {name} is {phase(found) or 'new'}, not finished: `kiln cancel "
            f"syncset/{name}` stops it"
        )
    if phase(found) not in ("Failed", "Killed"):
        raise errors.CommandError(
            f"SyncSet {name} is {phase(found)}, nothing in it has failed: "
            f"`kiln replay {name}` runs the whole generation again"
        )
    if (found.get("spec") or {}).get("suspend"):
        raise errors.CommandError(
            f"SyncSet {name} is suspended: `kiln resume syncset/{name}` first"
        )
    change = {"run": asked + 1, "killTimestamp": None}
    await job_lookup.patch_spec(s, name, change, SERVED)
    return asked + 1


async def replay(s: session.Session, name: str, generation: int | None) -> int:
    """Request a new generation of a SyncSet with the data and the flow of an earlier one.

    Return the number of the new generation. Raises CommandError while a generation runs, and for an
    earlier generation that is not kept.
    """
    found = await get(s, name)
    if not is_over(found):
        raise errors.CommandError(
            f"SyncSet {name} is {phase(found) or 'new'}, not finished: `kiln cancel "
            f"syncset/{name}` stops it"
        )
    kept = [int(one["generation"]) for one in status(found).get("generations") or ()]
    asked = generation or next(iter(kept), None)
    if asked not in kept:
        listed = ", ".join(map(str, kept)) or "none"
        what = "no generation" if asked is None else f"generation {asked} is not kept, so it"
        raise errors.CommandError(
            f"SyncSet {name}: {what} can be repeated; kept are: {listed} (spec.keep.generations)"
        )
    wanted = max(int(found["spec"].get("generation", 1)), int(status(found)["generation"])) + 1
    change = {
        "generation": wanted,
        "replay": {"generation": wanted, "of": asked},
        "killTimestamp": None,
    }
    await job_lookup.patch_spec(s, name, change, SERVED)
    return wanted
