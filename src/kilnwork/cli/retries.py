"""New runs of finished tasks, Jobs, SyncSets and file jobs, through their objects or the journal.

Used by `kiln retry`. Each function returns what it has started, and how to wait for it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.api import task as api_task
from kilnwork.cli import (
    errors,
    file_job_progress,
    file_jobs,
    job_fields,
    job_lookup,
    object_waits,
    retry_order,
    session,
    sync_set_requests,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A started run, with the text about it and the wait for its end.

    `sentence`: the text to print. `end`: waits for the end of the run and returns the final state.
    `name`: the name for `kiln why`.
    """

    name: str
    sentence: str
    end: Callable[[float | None], Awaitable[str]]


async def task(s: session.Session, name: str, *, force: bool) -> StartedRun:
    """Start a new run of one task, from its beginning."""
    path = s.path(api_kinds.TASKS, name, namespace=s.one_namespace())
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        query = {"force": "true"} if force else {}
        try:
            response = await s.ask("POST", s.tasks_path(name, "retry"), query=query)
        except kube_errors.Conflict:
            live = await s.ask("GET", s.tasks_path(name))
            if not _runs_again(str(live["state"]), int(live["run"])):
                raise
            return _started(s, name, int(live["run"]), already=True)
        return _started(s, name, int(response["run"]))
    status = live.get("status") or {}
    state, run = str(status.get("state", "")), max(int(status.get("run", 0)), 1)
    asked = live.get("spec", {}).get("run", 1)
    if asked > run:
        return _started(s, name, int(asked), already=True)
    if _runs_again(state, run):
        return _started(s, name, run, already=True)
    _check(name, live["spec"], state)
    if state == "Success" and not force:
        raise errors.CommandError(f"task {name} has succeeded: --force runs it again")
    notes = {api_task.FORCE_ANNOTATION: str(run + 1)} if state == "Success" else {}
    await _raise_run(s, (retry_order.TASK, name), run + 1, notes=notes)
    return _started(s, name, run + 1)


async def failed_task(s: session.Session, name: str, begun: set[str]) -> StartedRun:
    """Start a run of a failed task, and of all tasks that failed with it.

    The runs reuse the results of children and inputs that succeeded. `begun`: ids of tasks that run
    again already; the function adds to it.
    """
    path = s.path(api_kinds.TASKS, name, namespace=s.one_namespace())
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        return await _failed_in_journal(s, name, begun)
    status = live.get("status") or {}
    state, run = str(status.get("state", "")), max(int(status.get("run", 0)), 1)
    if live.get("spec", {}).get("run", 1) <= run:
        if _runs_again(state, run):
            return _started(s, name, run, already=True)
        _check(name, live["spec"], state)
        if state == "Success":
            raise errors.CommandError(f"task {name} has succeeded: nothing in it has failed")
    subject = retry_order.TASK, name
    runs = await _failed_objects(s, subject)
    asked = max(
        run, int(live.get("spec", {}).get("run", 1))
    )  # another argument may have started it
    return _started(s, name, runs.get(subject, asked), others=len(runs) - 1)


async def _failed_in_journal(s: session.Session, name: str, begun: set[str]) -> StartedRun:
    try:
        response = await s.ask("POST", s.tasks_path(name, "retry"), query={"failed": "true"})
    except kube_errors.Conflict:
        live = await s.ask("GET", s.tasks_path(name))
        run = int(live["run"])
        if live["id"] in begun:
            return _started(s, name, run)
        if not _runs_again(str(live["state"]), run):
            raise
        return _started(s, name, run, already=True)
    retried = response["retried"]
    begun.update(retried["tasks"])
    objects = [(retry_order.TASK, str(one)) for one in retried["objects"]]
    raised = await _failed_objects(s, *objects) if objects else {}
    others = len(retried["tasks"]) + len(raised) - 1
    if response["id"] in retried["tasks"]:
        return _started(
            s, name, int(response["run"]), others=others, children=int(retried["waiting"])
        )
    # the object above it submits it again
    above = ", ".join(one for _, one in objects)
    return StartedRun(
        name,
        f"{above} starts again and will run {name} again",
        lambda timeout_s: object_waits.wait_until_final(
            s, name, timeout_s=timeout_s, run=int(response["run"]) + 1
        ),
    )


def _started(
    s: session.Session,
    name: str,
    run: int,
    *,
    others: int = 0,
    children: int = 0,
    already: bool = False,
) -> StartedRun:
    """Return a StartedRun for a run of a task.

    `others`: number of tasks that start again with it. `children`: number of failed children of all
    of these, which run again when their parents submit them. `already`: another client has started
    the run.
    """
    more = f", with {others} more around it" if others > 0 else ""
    if children > 0:
        number = "1 failed child" if children == 1 else f"{children} failed children"
        more += f" and {number}" if more else f", with {number}"
    verb = "is running again already," if already else "starts again"
    return StartedRun(
        name,
        f"{name} {verb} as run {run}{more}",
        lambda timeout_s: object_waits.wait_until_final(s, name, timeout_s=timeout_s, run=run),
    )


def _runs_again(state: str, run: int) -> bool:
    """Return whether another client has already retried the task; its run is then followed."""
    return run > 1 and not object_waits.is_final(state)


def _check(name: str, spec: dict[str, Any], state: str) -> None:
    if not object_waits.is_final(state):
        raise errors.CommandError(
            f"task {name} is {state or 'new'}, not finished: `kiln cancel {name}` stops it"
        )
    if spec.get("suspend"):
        raise errors.CommandError(f"task {name} is suspended: `kiln resume {name}` first")


async def _wait_until_finished(
    s: session.Session,
    subject: object_waits.WaitSubject,
    is_over: Callable[[dict[str, Any]], bool],
    *,
    timeout_s: float | None,
) -> dict[str, Any] | None:
    """Wait until an object has finished and return it, or None if it was deleted."""
    return await object_waits.until(
        s,
        subject,
        lambda seen: seen is None or is_over(seen),
        text=f"waiting for {subject.resource.kind} {subject.name} to be over",
        timeout_s=timeout_s,
    )


async def sync_set(s: session.Session, name: str) -> StartedRun:
    """Start a run of the failed steps of a SyncSet's newest generation and of the steps after
    them.
    """
    run = await sync_set_requests.retry(s, name)

    async def end(timeout_s: float | None) -> str:
        subject = object_waits.WaitSubject(api_kinds.SYNC_SETS, name, s.one_namespace())
        over = await _wait_until_finished(
            s, subject, sync_set_requests.is_over, timeout_s=timeout_s
        )
        return "Deleted" if over is None else sync_set_requests.phase(over)

    return StartedRun(
        f"syncset/{name}", f"SyncSet {name}: what failed starts again as run {run}", end
    )


async def job(s: session.Session, found: job_lookup.Item, *, failed: bool) -> StartedRun:
    """Start a run of the indexes of a Job that have not succeeded.

    `failed`: also of the Tasks and Jobs that failed with it.
    """
    name, phase = found["metadata"]["name"], job_fields.phase(found)
    run = int(job_fields.spec(found).get("run", 1))
    if not job_fields.is_over(found) and run > 1:
        return _of_job(s, name, f"job/{name} is running again already, as run {run}")
    if not job_fields.is_over(found):
        raise errors.CommandError(
            f"Job {name} is {phase or 'new'}, not finished: `kiln cancel job/{name}` stops it"
        )
    counts = job_fields.counts(found)
    if phase == api_job.Phase.SUCCEEDED and counts.succeeded == counts.total:
        raise errors.CommandError(
            f"Job {name} has succeeded, no index is left to run: create another Job"
        )
    if job_fields.spec(found).get("suspend"):
        raise errors.CommandError(f"Job {name} is suspended: `kiln resume job/{name}` first")
    raised = await _failed_objects(s, (retry_order.JOB, name)) if failed else {}
    if (retry_order.JOB, name) in raised:
        run = raised[retry_order.JOB, name]
    else:
        run += 1
        await _raise_run(s, (retry_order.JOB, name), run)
    more = f", with {len(raised) - 1} more around it" if len(raised) > 1 else ""
    return _of_job(s, name, f"job/{name} starts again as run {run}{more}")


def _of_job(s: session.Session, name: str, sentence: str) -> StartedRun:
    async def end(timeout_s: float | None) -> str:
        subject = object_waits.WaitSubject(api_kinds.JOBS, name, s.one_namespace())
        over = await _wait_until_finished(s, subject, job_fields.is_over, timeout_s=timeout_s)
        return "Deleted" if over is None else job_fields.phase(over)

    return StartedRun(f"job/{name}", sentence, end)


async def file_job(s: session.Session, found: file_jobs.Job) -> StartedRun:
    """Start a run of the failed or cancelled parts of a file job."""
    job_id = found["id"]
    document = await file_jobs.post_action(s, job_id, "retry")

    async def end(timeout_s: float | None) -> str:
        last = await file_job_progress.wait_until_finished(s, job_id, timeout_s=timeout_s)
        return str(file_jobs.phase(last))

    return StartedRun(job_id, file_jobs.sentence(document), end)


async def _failed_objects(
    s: session.Session, *start: retry_order.Name
) -> dict[retry_order.Name, int]:
    """Request new runs of all objects that failed together with the given ones.

    Return the run numbers, in the order of the requests.
    """
    namespace, items = s.one_namespace(), dict[retry_order.Name, job_lookup.Item]()
    for served in (api_kinds.TASKS, api_kinds.JOBS):
        for item in await s.items(s.path(served, namespace=namespace)):
            items[served.kind, item["metadata"]["name"]] = item
    runs = {}
    for name in retry_order.connected(items, start):
        run = int(items[name].get("spec", {}).get("run", 1)) + 1
        notes = {api_task.RESUME_ANNOTATION: str(run)} if name[0] == retry_order.TASK else {}
        await _raise_run(s, name, run, notes=notes)
        runs[name] = run
    return runs


async def _raise_run(
    s: session.Session, name: retry_order.Name, run: int, *, notes: dict[str, str] | None = None
) -> None:
    served = api_kinds.TASKS if name[0] == retry_order.TASK else api_kinds.JOBS
    path = s.path(served, name[1], namespace=s.one_namespace())
    change: dict[str, Any] = {"spec": {"run": run, "killTimestamp": None}}
    if notes:
        change["metadata"] = {"annotations": notes}
    await s.ask("PATCH", path, body=change, content_type=http_types.MERGE_PATCH)
