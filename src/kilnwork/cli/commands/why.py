"""`kiln why`: explain in one sentence the state of a task or object."""

import contextlib
from collections.abc import Iterable
from typing import Any

import click

from kilnwork.api import api_resources, task
from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_jobs,
    job_fields,
    job_lookup,
    object_waits,
    options,
    output_formats,
    pond_sentence,
    readyz_reader,
    session,
    shell_completion,
    sync_set_requests,
    task_cluster_sentence,
    task_lists,
)
from kilnwork.kube import errors as kube_errors
from kilnwork.server import state_explanations

FIRST_LOOK_S = 3.0
"""How long to wait until the manager has set the status of a new Task."""


@click.command()
@click.argument("subject", metavar="NAME|ID|KIND/NAME", shell_complete=shell_completion.subjects)
@options.target
@options.data
@options.output("json")
def command(subject: str, form: str | None) -> None:
    """Explain in one sentence why a task waits, runs, failed or was killed.

    \b
    kiln why hello
    kiln why taskcluster/default
    kiln why job/report-x7k2p
    kiln why jobconfig/report
    kiln why syncset/eod-risk
    kiln why datapond/lake

    If a Python function raised an exception, prints its traceback too. KIND/NAME explains the state
    of another object, file/NAME or the id of a file job that of the file job.
    """
    document = session.run(lambda s: _document(s, subject))
    if form == "json":
        click.echo(output_formats.json_text(document), nl=False)
    else:
        click.echo(document["why"])
        for line in task_lists.traceback(document.get("error")):
            click.echo(line)


async def _document(s: session.Session, word: str) -> dict[str, Any]:
    document = await job_lookup.call_for_named(
        s, word, task=lambda name: _of_object(s, name), file_job=_of_file_job, job=_of_job
    )
    # A task that cannot be stored has no reason of its own: the server has it.
    if "state" in document and not object_waits.is_final(document["state"]):
        with contextlib.suppress(*errors.SERVER_ERRORS):
            if waits_for := await readyz_reader.read_open_checks(s):
                document["why"] += f" The server is not ready: {_full_stop(waits_for)}"
    return document


async def _of_job(found: job_lookup.Item) -> dict[str, Any]:
    return {"why": job_sentence(found), "status": found.get("status", {})}


def job_sentence(found: job_lookup.Item) -> str:
    """Return a sentence about the state of a Job and its failed indexes, with advice on what to
    do.
    """
    text = f"{job_fields.sentence(found)}."
    counts = job_fields.counts(found)
    if counts.failed and counts.total > 1:
        text += f" Failed: {counts.failed_indexes}."
    if job_fields.spec(found).get("suspend") and not job_fields.is_over(found):
        text += f" It is suspended: `kiln resume job/{found['metadata']['name']}` resumes it."
    if job_fields.is_over(found) and job_fields.phase(found) != api_job.Phase.SUCCEEDED:
        text += f" {job_fields.hint(found)}."
    if found["metadata"].get("deletionTimestamp"):
        kept = ", ".join(found["metadata"].get("finalizers") or ())
        text += f" It is being deleted{f', and stays until {kept} is removed' if kept else ''}."
    return text


def config_sentence(found: job_lookup.Item) -> str:
    """Return a sentence about a JobConfig: its state, its problems and its next run."""
    name, status = found["metadata"]["name"], found.get("status") or {}
    if not status.get("state"):
        return f"JobConfig {name} has not been processed yet."
    active, queued = status.get("active", 0), status.get("queued", 0)
    text = f"JobConfig {name} is {status['state']}: {active} of its Jobs run, {queued} wait"
    bad = [c for c in status.get("conditions") or () if c["status"] != "True"]
    if bad:
        return f"{text}; {_full_stop('; '.join(_together(bad)))}"
    schedule = found["spec"].get("schedule")
    if schedule is None:
        return f"{text}; it has no schedule: `kiln run-job {name}` runs it."
    if schedule.get("disabled"):
        return f"{text}; its schedule is disabled: `kiln enable {name}` lets it make Jobs."
    following = status.get("nextRuns") or ()
    text += f"; it runs next at {following[0]}" if following else "; no further run is scheduled"
    missed = status.get("missed") or {}
    if missed.get("total"):
        text += f"; {missed['total']} ticks made no Job, the latest by {missed['latestReason']}"
    return f"{text}. `kiln schedule {name}` shows more."


_SENTENCES = {
    api_kinds.JOB_CONFIGS.kind: config_sentence,
    api_kinds.SYNC_SETS.kind: sync_set_requests.sentence,
    api_kinds.TASK_CLUSTERS.kind: task_cluster_sentence.sentence,
}
"""Kinds with a sentence of their own."""


async def _of_file_job(job: file_jobs.Job) -> dict[str, Any]:
    return {"why": f"{file_jobs.sentence(job)}.", "status": job}


async def _of_object(s: session.Session, word: str) -> dict[str, Any]:
    ref = (await s.kinds.refs([word]))[0] if "/" in word else None
    if ref is not None and ref.resource != api_kinds.TASKS:
        found = await s.ask("GET", s.path(ref.resource, ref.name, namespace=s.one_namespace()))
        if ref.resource == api_kinds.DATA_PONDS:
            return await _of_pond(s, found)
        describe = _SENTENCES.get(ref.resource.kind)
        text = sentence(ref.resource, found) if describe is None else describe(found)
        return {"why": text, "status": found.get("status", {})}
    name = ref.name if ref is not None and ref.name is not None else word
    try:
        found = await s.ask("GET", s.path(api_kinds.TASKS, name, namespace=s.one_namespace()))
    except kube_errors.NotFound as error:
        try:
            return await s.get_json(s.tasks_path(name, "why"))
        except kube_errors.NotFound:
            raise error from None
    if not (found.get("status") or {}).get("state"):
        found = await _looked_at(s, name, found)
    status = found.get("status") or {}
    facts = state_explanations.WhyFacts.of_object(found)
    document = {
        "why": state_explanations.sentence(facts, now=s.clock.wall()),
        "state": status.get("state", ""),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
    }
    known = await _in_journal(s, found)
    if document["state"] == known.get("state") == task.State.RUNNING:
        document["why"] = known["why"]  # includes the progress, which objects do not have
    elif "used" in known and document["state"] == known.get("state"):
        document["why"] += f" {known['used']}"
    return {**document, "error": known["error"]} if "error" in known else document


async def _looked_at(s: session.Session, name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return a new Task once the manager has set its status.

    If the manager sets none within a moment, returns the unchanged Task.
    """
    subject = object_waits.WaitSubject(api_kinds.TASKS, name, s.one_namespace())
    with contextlib.suppress(errors.TimedOut):
        seen = await object_waits.until(
            s,
            subject,
            lambda now: now is None or bool((now.get("status") or {}).get("state")),
            text=f"waiting for a first look at task {name}",
            timeout_s=FIRST_LOOK_S,
        )
        return found if seen is None else seen
    return found


async def _of_pond(s: session.Session, found: dict[str, Any]) -> dict[str, Any]:
    """Return the explanation of a DataPond, with the reports of its nodes, which its object
    lacks.
    """
    metadata = found["metadata"]
    nodes = await s.get_json(pond_sentence.path(metadata["namespace"], metadata["name"]) + "/nodes")
    text = pond_sentence.sentence(found, nodes["items"])
    return {"why": text, "status": found.get("status", {}), "nodes": nodes["items"]}


async def _in_journal(s: session.Session, found: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a started Task that only the journal has.

    These are its progress, its resource use and the error of its Python function.
    """
    if (found.get("status") or {}).get("startTime"):
        with contextlib.suppress(*errors.SERVER_ERRORS):
            return await s.get_json(s.tasks_path(found["metadata"]["uid"], "why"))
    return {}


def sentence(served: api_resources.Resource, found: dict[str, Any]) -> str:
    """Return a sentence about the status, containers and conditions of an object.

    For objects of kinds that have no explanation of their own.
    """
    name = f"{served.kind} {found['metadata']['name']}"
    status = found.get("status") or {}
    if status.get("phase") and (status.get("reason") or status.get("message")):
        return f"{name} is {_full_stop(object_waits.described(found))}"
    for container in status.get("containerStatuses") or ():
        for kind in ("waiting", "terminated"):
            state = (container.get("state") or {}).get(kind)
            if state and state.get("reason") != "Completed":
                text = state.get("message") or f"container {container['name']} is {kind}"
                text += _last_end(container)
                return (
                    f"{name} is {status.get('phase')} ({state.get('reason')}): {_full_stop(text)}"
                )
    bad = [c for c in status.get("conditions") or () if c["status"] != "True"]
    if status.get("phase") and not bad:
        return f"{name} is {status['phase']}."
    parts = _together(bad or status.get("conditions") or ())
    return f"{name}: {_full_stop('; '.join(parts) or object_waits.described(found))}"


def _last_end(container: dict[str, Any]) -> str:
    """Return a text on how the container last terminated: the cause behind a "back-off" message."""
    ended = (container.get("lastState") or {}).get("terminated")
    if not ended:
        return ""
    what = ended.get("message") or f"exit code {ended.get('exitCode')}"
    return f"; it ended with {what}"


def _together(conditions: Iterable[dict[str, Any]]) -> list[str]:
    """Return sentences about the conditions of an object, without repetition.

    Condition types that share a state, reason and message share a sentence.
    """
    types: dict[tuple[str, str, str], list[str]] = {}
    for c in conditions:
        state = (c["status"], c.get("reason") or "", c.get("message") or "")
        types.setdefault(state, []).append(c["type"])
    return [_condition(named, *state) for state, named in types.items()]


def _condition(types: list[str], status: str, reason: str, message: str) -> str:
    text = f"{' and '.join(types)} {'is' if len(types) == 1 else 'are'} {status}"
    text += f" ({reason})" if reason else ""
    return f"{text}: {message}" if message else text


def _full_stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
