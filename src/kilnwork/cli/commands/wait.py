"""`kiln wait`: wait until objects have a state or condition, or are gone."""

import contextlib
import enum
from collections.abc import Callable
from typing import NamedTuple

import click

from kilnwork.api import api_resources, meta, sync_set, task
from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_job_lookup,
    file_job_progress,
    file_jobs,
    job_fields,
    job_lookup,
    object_waits,
    options,
    output_formats,
    session,
    shell_completion,
    sync_set_requests,
    task_id_lookup,
)
from kilnwork.kube import errors as kube_errors

_FINAL = "final"
_IN_WORDS = {"delete": "gone", "final": "over"}
_STATES = {state.lower(): state for state in task.State}


class _OfPhases(NamedTuple):
    """Functions with which `kiln wait` treats a kind that has phases, some of them final."""

    phases: type[enum.StrEnum]
    phase_of: Callable[[str], enum.StrEnum | None]
    test_of: Callable[[str, str], object_waits.Test | None]
    check_end: Callable[[meta.JsonObject], None]


_OF_PHASES = {
    api_kinds.JOBS.kind: _OfPhases(
        api_job.Phase, job_fields.phase_of, job_fields.test_of, job_fields.check_end
    ),
    api_kinds.SYNC_SETS.kind: _OfPhases(
        sync_set.Phase,
        sync_set_requests.phase_of,
        sync_set_requests.test_of,
        sync_set_requests.check_end,
    ),
}


_DEFAULTS = {api_kinds.DATA_PONDS.kind: "condition=Ready"}
"""Default of `--for` for kinds that have no final state."""


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="NAME… | KIND/NAME…",
    shell_complete=shell_completion.subjects,
)
@options.target
@click.option(
    "--for",
    "wanted",
    default=None,
    metavar="WHAT",
    help="state=NAME; phase=NAME (Jobs and SyncSets); condition=TYPE[=STATUS]; delete; or"
    " final, any final state, with exit code 0. Default: success, for DataPonds"
    " condition=Ready.",
)
@click.option(
    "--timeout",
    type=options.DURATION,
    default=None,
    help="Stop waiting after this time, 0 to check once; default: wait without limit.",
)
def command(words: tuple[str, ...], wanted: str | None, timeout: float | None) -> None:
    """Wait until tasks succeed, or until objects reach the state or condition of --for.

    \b
    kiln wait hello
    kiln wait task-0 --for=state=Success --timeout=60s
    kiln wait 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10
    kiln wait taskcluster/default --for=condition=Available
    kiln wait job/report-x7k2p --for=Succeeded --timeout=1h
    kiln wait syncset/eod-risk
    kiln wait datapond/lake --timeout=60s

    Prints a line for each object once it has reached the state. For tasks that are not Task
    objects, and for file jobs (by id, name or file/NAME), it can only wait until they finish.

    Exits with 5 after --timeout, and with 6 if a task, Job, SyncSet or file job fails, or if
    one ends in another state than the requested one. With --for=final every final state is
    accepted.
    """

    async def work(s: session.Session) -> None:
        for given in words:
            word = (
                given
                if file_job_lookup.explicit_name(given)
                else await task_id_lookup.resolve(s, given)
            )
            job, name = await _job_or_task(s, word)
            if job is not None:
                await _file_job(s, job, wanted, timeout_s=timeout)
                continue
            if name is not None:
                await _until_over(s, name, wanted, timeout_s=timeout)
                continue
            subject = await _subject(s, word)
            name = output_formats.full_name(subject.resource, subject.name)
            what = wanted or _DEFAULTS.get(subject.resource.kind, _FINAL)
            check_kind(what, subject.resource)
            text = f"waiting for {name} to be {_IN_WORDS.get(what, what)}"
            of_phases = _OF_PHASES.get(subject.resource.kind)
            test = None if of_phases is None else of_phases.test_of(what, name)
            test = test or test_of(what, name)
            found = await object_waits.until(s, subject, test, text=text, timeout_s=timeout)
            if wanted is None and of_phases is not None:
                of_phases.check_end(found or {})
            elif wanted is None and what == _FINAL:
                check_end(found, name)
            click.echo(f"{name} {'deleted' if wanted == 'delete' else 'condition met'}")

    session.run(work)


async def _job_or_task(s: session.Session, word: str) -> tuple[str | None, str | None]:
    """Return the id of the file job, or the name of the task without an object, that a word names.

    Of the pair, the first is for a file job and the second for a task that only the journal has;
    both are None for any other word.
    """
    name = file_job_lookup.explicit_name(word)
    if name is not None:
        found: file_job_lookup.FoundFileJob | None = await file_job_lookup.find(s, name)
    elif "/" in word:
        return None, None
    else:
        try:
            await s.ask("GET", s.path(api_kinds.TASKS, word, namespace=s.one_namespace()))
        except kube_errors.NotFound:
            with contextlib.suppress(kube_errors.NotFound):
                task = await s.get_json(s.tasks_path(word))
                return None, None if task["declared"] else word
        else:
            return None, None
        found = await file_job_lookup.find_readable(s, word)
    if found is None:
        return None, None
    return (found.job["id"], None) if found.part is None else (None, found.task)


async def _file_job(
    s: session.Session, job: str, wanted: str | None, *, timeout_s: float | None
) -> None:
    if wanted not in (None, _FINAL):
        raise errors.InvalidInput(
            f"{job} is a file job: it can only be waited for until it finishes, without --for"
        )
    found = await file_job_progress.wait_until_finished(s, job, timeout_s=timeout_s)
    await file_job_progress.report_bad_records(s, found)
    if wanted is None:
        file_jobs.check_end(found)
    click.echo(file_jobs.sentence(found))


async def _until_over(
    s: session.Session, name: str, wanted: str | None, *, timeout_s: float | None
) -> None:
    state = task.State.SUCCESS if wanted is None else _state_of(wanted)
    if state is None and wanted != _FINAL:
        raise errors.InvalidInput(
            f"{name} is not a Task object: use --for=final or --for=state=NAME"
        )
    if state is not None and not task.State(state).final:
        raise errors.InvalidInput(
            f"{name} is not a Task object: it can only be waited for until it finishes"
        )
    ended = await object_waits.wait_until_final(s, name, timeout_s=timeout_s)
    if wanted is None and ended != state:
        raise errors.TaskFailed(f"task {name} ended as {ended}: `kiln why {name}` says why")
    if state not in (None, ended):
        raise errors.TaskFailed(f"task {name} will not be {state}: it is {ended}")
    click.echo(f"{name} condition met")


async def _bare_kind(s: session.Session, name: str) -> api_resources.Resource:
    """Return the kind that a name without a kind stands for: Job or Task.

    It is Job if there is a Job but no Task of that name, otherwise Task.
    """
    try:
        await s.ask("GET", s.path(api_kinds.TASKS, name, namespace=s.one_namespace()))
    except kube_errors.NotFound:
        if await job_lookup.find_readable_job(s, name) is not None:
            return api_kinds.JOBS
    return api_kinds.TASKS


async def _subject(s: session.Session, word: str) -> object_waits.WaitSubject:
    if "/" not in word:
        served = await _bare_kind(s, word)
        return object_waits.WaitSubject(served, word, s.one_namespace())
    ref = (await s.kinds.refs([word]))[0]
    return object_waits.WaitSubject(ref.resource, ref.name or "", s.one_namespace())


def check_end(found: meta.JsonObject | None, name: str) -> None:
    """Raise `errors.TaskFailed` for a finished Task that has not succeeded."""
    state = ((found or {}).get("status") or {}).get("state")
    if state != task.State.SUCCESS:
        raise errors.TaskFailed(f"{name} ended as {object_waits.described(found)}")


def check_kind(wanted: str, served: api_resources.Resource) -> None:
    """Raise `errors.InvalidInput` if objects of the kind never reach the state of `--for`.

    Only tasks, Jobs and SyncSets have states and a final state; for other kinds the command would
    wait for ever.
    """
    if wanted.partition("=")[0] in ("condition", "delete") or served == api_kinds.TASKS:
        return
    of_phases = _OF_PHASES.get(served.kind)
    if of_phases is not None:
        if wanted != _FINAL and of_phases.phase_of(wanted) is None:
            phases = ", ".join(of_phases.phases)
            raise errors.InvalidInput(
                f"--for={wanted}: write phase=NAME ({phases}), condition=TYPE, delete or final"
            )
    else:
        raise errors.InvalidInput(
            f"only tasks, Jobs and SyncSets have states and an end: for a {served.kind} write "
            "--for=condition=TYPE or --for=delete"
        )


def test_of(wanted: str, name: str) -> object_waits.Test:
    """Return the test with which `--for` waits for the object called `name`.

    Raises `errors.InvalidInput`.
    """
    if wanted == "delete":
        return lambda found: found is None
    if wanted == _FINAL:
        return _existing(object_waits.final, name)
    what, _, value = wanted.partition("=")
    if what == "condition" and value:
        return _existing(_condition(value), name)
    state = _state_of(wanted)
    if state is None:
        states = ", ".join(task.State)
        raise errors.InvalidInput(
            f"--for={wanted}: write state=NAME ({states}), condition=TYPE, delete or final"
        )
    return _existing(_state(state, name), name)


def _state_of(wanted: str) -> task.State | None:
    """Return the task state in `state=NAME` or `NAME`, or None if the text names no task state."""
    what, _, value = wanted.partition("=")
    return _STATES.get((value if what == "state" else wanted).lower())


def _existing(test: Callable[[meta.JsonObject], bool], name: str) -> object_waits.Test:
    def there(found: meta.JsonObject | None) -> bool:
        if found is None:
            raise errors.Missing(f"{name} does not exist")
        return test(found)

    return there


def _condition(value: str) -> Callable[[meta.JsonObject], bool]:
    wanted, _, status = value.partition("=")

    def met(found: meta.JsonObject) -> bool:
        newest = (found.get("metadata") or {}).get("generation", 0)
        return any(
            c["type"].lower() == wanted.lower()
            and c["status"].lower() == (status or "true").lower()
            # like `kubectl wait`: an older generation says nothing about the newest spec
            and c.get("observedGeneration", newest) >= newest
            for c in (found.get("status") or {}).get("conditions") or ()
        )

    return met


def _state(wanted: task.State, name: str) -> Callable[[meta.JsonObject], bool]:
    def reached(found: meta.JsonObject) -> bool:
        state = (found.get("status") or {}).get("state")
        over = object_waits.final(found)  # False if only an earlier run has finished
        if state == wanted and (over or not wanted.final):
            return True
        if over:
            raise errors.TaskFailed(f"{name} will not be {wanted}: {object_waits.described(found)}")
        return False

    return reached
