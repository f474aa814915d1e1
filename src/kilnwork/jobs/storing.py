"""What a job does in its folder of the store: blocking, for threads. Every one may be repeated.

Used by the engine. A folder holds `input`, `job.json`, `out/…` of attempts, `commits/PART-RUN` and
`result/…`; see `kilnwork.data.commits` for the records. Decides nothing.
"""

import math
from typing import NamedTuple

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import commits
from kilnwork.data import errors as data_errors
from kilnwork.data.stores import port
from kilnwork.jobs import model, records, steps

JOB = "job.json"
MOST_JOB_BYTES = 64 << 20
OUT = "out/"
RESULT = "result/"
_O = filejobs.Outcome


class JobFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`job.json`: what a job is, for when the journal is lost. `run`: its newest."""

    id: str
    uuid: str
    namespace: str
    user: str
    created: float
    run: int
    spec: filejobs.JobSpec
    manifest: filejobs.Manifest
    source: str | None = None


class Damage(NamedTuple):
    """Parts whose outputs cannot be used. This run of the reducer is over, but not fenced: nobody
    looks at what it may still publish, as soon as the job has another run."""

    parts: tuple[int, ...]
    message: str


def job_file(job: records.Job) -> JobFile:
    """As it is now."""
    return JobFile(
        id=job.id.text,
        uuid=job.id.dashed,
        namespace=job.namespace,
        user=job.user,
        created=job.created,
        run=job.run,
        spec=job.spec,
        manifest=job.manifest,
        source=job.source,
    )


def store(folder: port.Store, file: JobFile, inline: bytes | None) -> None:
    """Input first: where there is a `job.json`, there is an input."""
    if inline is not None:
        folder.put(model.FOLDER_INPUT, inline)
    folder.put(JOB, msgspec.json.encode(file))


def recover(folder: port.Store, runs: dict[int, int]) -> list[filejobs.Commit]:
    """Records of these parts (0: the reducer) in these runs, as far as there are any."""
    there = [part for part, run in commits.listed(folder) if runs.get(part) == run]
    found = (commits.find(folder, part, runs[part]) for part in sorted(there))
    return [commit for commit in found if commit is not None]


def settle(folder: port.Store, step: steps.Settle, at: float) -> filejobs.Commit | None:
    """How the run of a part ended; without a record it ends as `outcome`, if that is given."""
    if step.outcome is None:
        return commits.find(folder, step.part, step.run)
    message = step.message[:2000]
    return commits.give_up(
        folder, step.part, step.run, outcome=step.outcome, message=message, at=at
    )


def settle_reducer(
    folder: port.Store, run: int, reduced: filejobs.Reduced | None, at: float
) -> filejobs.Commit | Damage:
    """The reducer's task succeeded: it has published, or says which parts cannot be used."""
    found = commits.find(folder, 0, run)
    if found is not None:
        return found
    if reduced is None or not reduced.damaged:
        message = "the task that reduces succeeded without a commit record"
        return commits.give_up(folder, 0, run, outcome=_O.FAILED, message=message, at=at)
    first = reduced.damaged[0]
    return Damage(tuple(one.part for one in reduced.damaged), f"part {first.part}: {first.message}")


def publish(
    folder: port.Store, run: int, part: filejobs.Commit | None, at: float
) -> filejobs.Commit | Damage:
    """The result of the only part (None: there is none) becomes that of the job."""
    if part is not None and part.output is not None:
        trouble = _unusable(folder, part.output)
        if trouble:
            return Damage((part.part,), trouble)
    result = filejobs.Commit(
        part=0,
        run=run,
        attempt=commits.SERVER,
        outcome=_O.SUCCEEDED,
        records=filejobs.Records() if part is None else part.records,
        output=None if part is None else part.output,
        errors=None if part is None else part.errors,
        started=at,
        finished=at,
    )
    return commits.publish(folder, result)


def _unusable(folder: port.Store, file: filejobs.StoredFile) -> str:
    try:
        size = folder.head(file.key).bytes
    except data_errors.ObjectMissing:
        return f"{file.key} is missing"
    return "" if size == file.bytes else f"{file.key} has {size} bytes instead of {file.bytes}"


def tidy(folder: port.Store, *, after: float, before: float) -> int:
    """Delete what killed attempts have written and no record names, if the job has ended between
    these moments (wall clock, seconds); returns how many objects.

    An attempt of that run that still writes finds a record, loses and removes its own.
    """
    runs = [run for part, run in commits.listed(folder) if part == 0]
    end = commits.find(folder, 0, max(runs)) if runs else None
    if end is None or not after < end.finished <= before:
        return 0
    written = {facts.key for place in (OUT, RESULT) for facts in folder.list(place)}
    raw = port.read_all(folder, JOB, most=MOST_JOB_BYTES)
    if msgspec.json.decode(raw, type=JobFile).run != end.run:
        return 0  # it has been redriven, of which the store is told before anything runs
    for part, run in list(commits.listed(folder)):
        commit = commits.find(folder, part, run)
        if commit is not None:
            written -= {file.key for file in (commit.output, commit.errors) if file is not None}
    folder.delete(written)
    return len(written)


def purge(whole: port.Store, prefix: str) -> None:
    """Delete a folder (`prefix` ends with a slash); `job.json` first: half of it is no job. Last
    what killed attempts were about to write."""
    whole.delete([prefix + JOB])
    port.clear(whole, prefix)
    port.sweep(whole, before=math.inf, prefix=prefix)
