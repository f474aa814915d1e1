"""Commit records: how the run of a part ended, created once in the directory of its job.

Used by the slots that map and reduce, by `jobs`, which cancels and fails by the same rule, and
by what merges. The record *is* the result: of all attempts at a part's run, of cancelling and of
failing, the first to create `commits/PART-RUN` wins, and everybody else takes the winner's record
for the truth (design: fencing of parts). Nothing here replaces or removes one; a redrive has
another run.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.stores import port

DIRECTORY = "commits/"

SERVER = 0
"""The attempt of a commit that no worker made."""


def key(part: int, run: int) -> str:
    """Where it is, in the job's directory. `part`: 0 is the reducer."""
    return f"{DIRECTORY}{part}-{run}"


def publish(store: port.Store, commit: filejobs.Commit) -> filejobs.Commit:
    """Create the record, unless there is one; returns the one there is: ours or the winner's.

    Repeatable. What it names must be in the store already. Raises `StoreError`.
    """
    place = key(commit.part, commit.run)
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
    """Publish that the run ends without a result: no later commit of it can win.

    Returns the record there is: a worker may have been first. `at`: wall clock, seconds.
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
    """The record, None while the run goes on. Raises `ObjectDamaged`."""
    try:
        return _read(store, key(part, run))
    except errors.ObjectMissing:
        return None


def listed(store: port.Store) -> Iterator[tuple[int, int]]:
    """Part and run of all records, in no useful order, without reading them."""
    for facts in store.list(DIRECTORY):
        part, _, run = facts.key.removeprefix(DIRECTORY).partition("-")
        if part.isdecimal() and run.isdecimal():
            yield int(part), int(run)


def latest(store: port.Store) -> dict[int, filejobs.Commit]:
    """By part, the record of its highest run that has one. Raises `ObjectDamaged`."""
    runs: dict[int, int] = {}
    for part, run in listed(store):
        runs[part] = max(run, runs.get(part, 0))
    return {part: _read(store, key(part, run)) for part, run in sorted(runs.items())}


def _read(store: port.Store, place: str) -> filejobs.Commit:
    raw = port.read_all(store, place)
    try:
        commit = msgspec.json.decode(raw, type=filejobs.Commit)
    except msgspec.MsgspecError as error:
        raise _damaged(store, place, str(error)) from error
    if key(commit.part, commit.run) != place:
        raise _damaged(store, place, f"it is that of part {commit.part}, run {commit.run}")
    return commit


def _damaged(store: port.Store, place: str, why: str) -> errors.ObjectDamaged:
    return errors.ObjectDamaged(
        f"{place} in {store.url} is no commit record: {why}. Remove it and redrive the job; and "
        "look after that disk"
    )
