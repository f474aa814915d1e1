"""Commit records: the outcome of a run of a part, created once in the directory of its job.

Used by the slots that map and reduce, by `jobs`, which cancels and fails parts by the same rule,
and by code that merges outputs. The record *is* the result: attempts at a run of a part, and
requests to cancel or fail it, all try to create `commits/PART-RUN`; the first succeeds, and all
others accept the existing record (design: fencing of parts). Records are never replaced or deleted;
a redrive uses another run.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.stores import port

DIRECTORY = "commits/"

SERVER = 0
"""Attempt number of a commit that was not made by a worker."""


def record_key(part: int, run: int) -> str:
    """Return the key of a commit record in the job's directory. Part 0 is the reducer."""
    return f"{DIRECTORY}{part}-{run}"


def publish(store: port.Store, commit: filejobs.Commit) -> filejobs.Commit:
    """Create a commit record unless the run of the part has one, and return the record that then
    exists.

    May be repeated. The files that the record names must be in the store already. Raises
    `StoreError`.
    """
    place = record_key(commit.part, commit.run)
    try:
        store.put(place, msgspec.json.encode(commit), create=True)
    except errors.ObjectExists:
        return _read(store, place)
    return commit


def fail_part(
    store: port.Store,
    part: int,
    run: int,
    *,
    outcome: filejobs.PartOutcome,
    message: str,
    at: float,
) -> filejobs.Commit:
    """Publish a commit record without a result, so that no later commit of this run of the part
    succeeds.

    Return the record that then exists: a worker may have created one first. `at`: wall clock
    seconds.
    """
    ended = filejobs.Commit(
        part=part,
        run=run,
        attempt=SERVER,
        outcome=outcome,
        message=message,
        started=at,
        finished=at,
    )
    return publish(store, ended)


def find(store: port.Store, part: int, run: int) -> filejobs.Commit | None:
    """Return the commit record of a run of a part, or None while the run is unfinished. Raises
    `ObjectDamaged`.
    """
    try:
        return _read(store, record_key(part, run))
    except errors.ObjectMissing:
        return None


def list_runs(store: port.Store) -> Iterator[tuple[int, int]]:
    """Yield the part and the run of each commit record, in no particular order.

    Only the keys of the records are listed; their content is not read.
    """
    for facts in store.list(DIRECTORY):
        part, _, run = facts.key.removeprefix(DIRECTORY).partition("-")
        if part.isdecimal() and run.isdecimal():
            yield int(part), int(run)


def read_latest(store: port.Store) -> dict[int, filejobs.Commit]:
    """Return the commit record of the highest run of each part, by part. Raises `ObjectDamaged`."""
    runs: dict[int, int] = {}
    for part, run in list_runs(store):
        runs[part] = max(run, runs.get(part, 0))
    return {part: _read(store, record_key(part, run)) for part, run in sorted(runs.items())}


def _read(store: port.Store, place: str) -> filejobs.Commit:
    raw = port.read_all(store, place)
    try:
        commit = msgspec.json.decode(raw, type=filejobs.Commit)
    except msgspec.MsgspecError as error:
        raise _damaged(store, place, str(error)) from error
    if record_key(commit.part, commit.run) != place:
        raise _damaged(store, place, f"it is that of part {commit.part}, run {commit.run}")
    return commit


def _damaged(store: port.Store, place: str, why: str) -> errors.ObjectDamaged:
    return errors.ObjectDamaged(
        f"{place} in {store.url} is no commit record: {why}. Remove it and redrive the job; and "
        "look after that disk"
    )
