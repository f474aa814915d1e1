"""Operations on the directory of a file job in the store. All operations block and may be repeated.

Used by `file_item_source`, in threads, and by `job_cleanup`. A directory holds `input`, `job.json`,
`out/…` (output of attempts), `commits/PART-RUN` (commit records, see `kilnwork.data.part_commits`)
and `result/…`. The callers decide which operation is due.
"""

import math
from collections.abc import Callable

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import part_commits
from kilnwork.data.stores import port
from kilnwork.jobs import file_job_types, plan_steps

JOB = "job.json"
MAX_JOB_BYTES = 64 << 20
OUT = "out/"
RESULT = "result/"
_O = filejobs.PartOutcome


class JobFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Content of `job.json`: the definition of a job, in case the journal is lost. `run`: the job's
    newest run.
    """

    id: str
    uuid: str
    namespace: str
    user: str
    created: float
    run: int
    spec: filejobs.FileJobSpec
    manifest: filejobs.Manifest
    source: str | None = None


def write_job_file(directory: port.Store, file: JobFile, inline: bytes | None) -> None:
    """Write the input, then `job.json`, so that a directory with `job.json` always has an input."""
    if inline is not None:
        directory.put(file_job_types.DIRECTORY_INPUT, inline)
    directory.put(JOB, msgspec.json.encode(file))


def read_commits(
    directory: port.Store, wanted: Callable[[int, int], bool]
) -> list[filejobs.Commit]:
    """Return the commit records of the (part, run) pairs for which `wanted` is true; part 0 is the
    reducer.
    """
    there = sorted(found for found in part_commits.list_runs(directory) if wanted(*found))
    found = (part_commits.find(directory, part, run) for part, run in there)
    return [commit for commit in found if commit is not None]


def settle_part(
    directory: port.Store, step: plan_steps.Settle, at: float
) -> filejobs.Commit | None:
    """Return the commit record of the run that a step names, or None if there is no record. Part 0
    is the job as a whole.

    If there is no record and the step has an `outcome`, a record with this outcome is created.
    """
    if step.outcome is None:
        return part_commits.find(directory, step.item, step.run)
    message = step.message[:2000]
    return part_commits.fail_part(
        directory, step.item, step.run, outcome=step.outcome, message=message, at=at
    )


def settle_reducer(
    directory: port.Store, run: int, returned: filejobs.Reduced | None, at: float
) -> filejobs.Commit | tuple[filejobs.Damaged, ...]:
    """Return the commit record that a successful reducing task has published, or the parts that the
    task reports as damaged. If it has done neither, create and return a record of a failure.

    If parts are damaged, this run of the reducer has ended but is not fenced: a record that it
    publishes later is never read once the job has another run.
    """
    found = part_commits.find(directory, 0, run)
    if found is not None:
        return found
    if returned is None or not returned.damaged:
        message = "the task that reduces succeeded without a commit record"
        return part_commits.fail_part(directory, 0, run, outcome=_O.FAILED, message=message, at=at)
    return returned.damaged


def publish_only_part(
    directory: port.Store, run: int, part: filejobs.Commit | None, at: float
) -> filejobs.Commit | tuple[filejobs.Damaged, ...]:
    """Publish the result of a job's only part as the result of the job. `part` is None for a job
    without parts.
    """
    if part is not None and part.output is not None:
        trouble = _unusable(directory, part.output)
        if trouble:
            return (filejobs.Damaged(part=part.part, run=part.run, message=trouble),)
    result = filejobs.Commit(
        part=0,
        run=run,
        attempt=part_commits.SERVER,
        outcome=_O.SUCCEEDED,
        records=filejobs.Records() if part is None else part.records,
        output=None if part is None else part.output,
        errors=None if part is None else part.errors,
        started=at,
        finished=at,
    )
    return part_commits.publish(directory, result)


def _unusable(directory: port.Store, file: filejobs.StoredFile) -> str:
    try:
        size = directory.head(file.key).bytes
    except data_errors.ObjectMissing:
        return f"{file.key} is missing"
    return "" if size == file.bytes else f"{file.key} has {size} bytes instead of {file.bytes}"


def tidy(directory: port.Store, *, after: float, before: float) -> int:
    """Delete objects that were written by killed attempts and are named by no commit record; return
    the number of deleted objects.

    Nothing is deleted unless the job has ended between `after` and `before` (wall clock seconds).
    An attempt of that run that is still writing finds a record, does not commit, and deletes its
    own output.
    """
    runs = [run for part, run in part_commits.list_runs(directory) if part == 0]
    end = part_commits.find(directory, 0, max(runs)) if runs else None
    if end is None or not after < end.finished <= before:
        return 0
    written = {facts.key for place in (OUT, RESULT) for facts in directory.list(place)}
    raw = port.read_all(directory, JOB, most=MAX_JOB_BYTES)
    if msgspec.json.decode(raw, type=JobFile).run != end.run:
        return 0  # redriven: job.json has the new run before any of its tasks runs
    for part, run in list(part_commits.list_runs(directory)):
        commit = part_commits.find(directory, part, run)
        if commit is not None:
            written -= {file.key for file in (commit.output, commit.errors) if file is not None}
    directory.delete(written)
    return len(written)


def purge(whole: port.Store, prefix: str) -> None:
    """Delete the directory of a job (`prefix` ends with a slash).

    `job.json` is deleted first, so that a half-deleted directory is not taken for a job; unfinished
    objects of killed attempts are deleted last.
    """
    whole.delete([prefix + JOB])
    port.clear(whole, prefix)
    port.sweep(whole, before=math.inf, prefix=prefix)
