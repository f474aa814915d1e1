"""`kiln delete`: delete objects by kind and name, by selector, or as listed in files."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from kilnwork.api import api_resources
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_job_lookup,
    file_jobs,
    kinds,
    manifests,
    object_waits,
    options,
    output_formats,
    selector_types,
    session,
    shell_completion,
    task_id_lookup,
)
from kilnwork.kit import errors as kit_errors
from kilnwork.kit import ids
from kilnwork.kube import errors as kube_errors

_UPLOAD = "upload/"


@dataclass(frozen=True, slots=True)
class _ObjectToDelete:
    resource: api_resources.Resource
    name: str
    namespace: str
    path: str
    uid: str

    @property
    def text(self) -> str:
        return output_formats.full_name(self.resource, self.name)


@click.command()
@click.argument(
    "words", nargs=-1, metavar="[KIND NAME… | KIND/NAME…]", shell_complete=shell_completion.objects
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Delete the objects in this YAML or JSON file or directory, or - for standard input;"
    " repeatable.",
    shell_complete=shell_completion.files,
)
@options.list_target
@click.option("--all", "everything", is_flag=True, help="Delete all objects of the kind.")
@click.option(
    "-l",
    "--selector",
    type=selector_types.LABEL_SELECTOR,
    metavar="LABELS",
    help="Delete all objects with matching labels.",
)
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until the objects are gone, the default, or return immediately.",
)
@click.option(
    "--timeout", type=options.DURATION, default=None, help="Stop waiting after this time."
)
@click.option("--ignore-not-found", is_flag=True, help="Do not treat missing objects as an error.")
@options.output("name")
def command(
    words: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    timeout: float | None,
    form: str | None,
    **flags: bool,
) -> None:
    """Delete objects, file jobs and finished tasks, and wait until they are gone.

    \b
    kiln delete task hello
    kiln delete task/hello taskcluster/batch
    kiln delete -f examples/01-counter/start.yaml --ignore-not-found
    kiln delete tasks,taskobjects --all
    kiln delete file/invoices      # a file job with its input, results and parts
    kiln delete files --all
    kiln delete task 5f1c2a10      # a finished call, with its runs, result and output

    Deleting an unfinished Task kills it. A deleted TaskCluster lets running tasks finish for up to
    its drainSeconds; then its workers stop.
    """
    if bool(words) == bool(files):
        raise click.UsageError("name what to delete: KIND NAME…, KIND/NAME…, or -f FILE")
    uploads = [word.removeprefix(_UPLOAD) for word in words if word.startswith(_UPLOAD)]
    if uploads and len(uploads) == len(words):
        if "" in uploads:
            raise errors.InvalidInput("upload/: name one; `kiln files --uploads` lists them")
        return session.run(lambda s: _delete_uploads(s, uploads, flags, form=form))
    jobs = file_job_lookup.parse_file_jobs(words) if words else None
    if jobs is not None:
        if selector or bool(jobs) == flags["everything"]:
            raise errors.InvalidInput("name the file jobs: file/NAME, their ids, or files --all")
        return session.run(lambda s: _delete_jobs(s, jobs, flags, form=form))
    if selector and flags["everything"]:
        raise click.UsageError("--all and -l exclude each other")
    listed = tuple(manifests.read(files))  # before the event loop, see `apply`
    if files and not listed:
        raise errors.InvalidInput(f"{', '.join(files)}: no objects in there")
    choice = _Selection(words, listed, selector, everything=flags["everything"])
    lenient = flags["ignore_not_found"]

    async def work(s: session.Session) -> None:
        victims = await _victims(s, choice, lenient=lenient)
        gone = await _delete(s, victims, lenient=lenient, form=form)
        if flags["wait"]:
            await _until_gone(s, gone, timeout_s=timeout)

    return session.run(work)


async def _delete_jobs(
    s: session.Session, jobs: Sequence[str], flags: Mapping[str, bool], *, form: str | None
) -> None:
    """Delete file jobs, which are not Kubernetes objects, with their input, results and parts."""

    async def delete(name: str) -> None:
        job = await file_jobs.resolve_id(s, name)
        try:
            await s.exchange("DELETE", file_jobs.path(job), query=file_jobs.namespace_query(s))
        except kube_errors.NotFound:
            if not flags["ignore_not_found"]:
                raise
        else:
            click.echo(job if form == "name" else f"job {job} deleted, with its files")

    if flags["everything"]:
        every = file_jobs.list_documents(s, where=file_jobs.path(), wanted={})
        jobs = [job["id"] async for job in every]
    await file_job_lookup.for_each(jobs, delete)


async def _delete_uploads(
    s: session.Session, uploads: Sequence[str], flags: Mapping[str, bool], *, form: str | None
) -> None:
    """Delete the received data of uploads that belong to no file job."""

    async def delete(upload: str) -> None:
        try:
            path = f"/files/{session.quoted(upload)}"
            await s.exchange("DELETE", path, query=file_jobs.namespace_query(s))
        except kube_errors.NotFound:
            if not flags["ignore_not_found"]:
                raise
        else:
            click.echo(f"{_UPLOAD}{upload}" if form == "name" else f"upload {upload} deleted")

    await file_job_lookup.for_each(uploads, delete)


@dataclass(frozen=True, slots=True)
class _Selection:
    words: tuple[str, ...]
    listed: tuple[manifests.Manifest, ...]
    selector: str | None
    everything: bool


async def _victims(
    s: session.Session, choice: _Selection, *, lenient: bool
) -> list[_ObjectToDelete]:
    named: list[tuple[api_resources.Resource, str, str]] = []
    if choice.listed:
        _check_plain(choice, "-f")
        for manifest in choice.listed:
            body = manifest.body
            try:
                served = await s.kinds.of(body["apiVersion"], body["kind"])
            except errors.InvalidInput:
                if lenient:
                    continue
                raise
            metadata = body["metadata"]
            namespace = metadata.get("namespace") or s.namespace
            named.append((served, metadata.get("name", ""), namespace))
    else:
        chosen = choice.everything or choice.selector  # a single word is then a kind
        if len(choice.words) == 1 and "/" not in choice.words[0] and not chosen:
            await _check_kind(s, choice.words[0])
        for ref in await s.kinds.refs(choice.words):
            if ref.name is not None:
                _check_plain(choice, "a name")
                name = ref.name
                if ref.resource == api_kinds.TASKS:
                    name = await task_id_lookup.resolve(s, name)
                    if await _forget_call(s, name):
                        continue
                named.append((ref.resource, name, s.one_namespace()))
                continue
            named += await _chosen(s, ref.resource, choice)
    return await _identified(s, named, lenient=lenient)


async def _forget_call(s: session.Session, name: str) -> bool:
    """Delete a task that is not a Task object, by id or name. Return False if there is none."""
    try:
        found = await s.get_json(s.tasks_path(name))
    except kube_errors.NotFound:
        return False
    except kit_errors.KilnError:
        if _is_id(name):
            raise
        return False  # deleting the object reports the problem
    if found["declared"]:
        return False
    if found["id"] != name:
        with contextlib.suppress(kube_errors.NotFound):
            await s.get_json(s.path(api_kinds.TASKS, name))
            return False  # an object that the journal has not accepted yet
    await s.ask("DELETE", s.tasks_path(found["id"]))
    click.echo(f"task {name} deleted, with its result and output")
    return True


def _is_id(name: str) -> bool:
    try:
        ids.task_id(name)
    except ValueError:
        return False
    return True


async def _check_kind(s: session.Session, word: str) -> None:
    """Raise `errors.Missing` if the only word is not a kind, but the name of an object or task."""
    if kinds.find_resources(word, api_kinds.ALL):
        return
    found = []
    for served in api_kinds.ALL:
        with contextlib.suppress(*errors.SERVER_ERRORS):
            if served.group == api_kinds.GROUP and served.namespaced:
                await s.ask("GET", s.path(served, word))
                found.append(f"{served.singular} {word}")
    if await file_job_lookup.find_readable(s, word) is not None:
        found.append(f"file/{word}")
    if found:
        alternatives = " or ".join(f"`kiln delete {one}`" for one in found)
        raise errors.Missing(f"{word} is a name, not a kind: write {alternatives}")


def _check_plain(choice: _Selection, what: str) -> None:
    if choice.everything or choice.selector:
        raise errors.InvalidInput(
            f"{what} says what to delete: leave out --all and -l, or leave it out"
        )


async def _chosen(
    s: session.Session, served: api_resources.Resource, choice: _Selection
) -> list[tuple[api_resources.Resource, str, str]]:
    if not choice.everything and not choice.selector:
        raise errors.InvalidInput(f"name the {served.plural}: names, --all, or a selector with -l")
    query = {"labelSelector": choice.selector} if choice.selector else {}
    items = await s.items(s.scope(served), query=query)
    if not items:
        await s.say_nothing_found(f"no {served.plural} found")
    return [(served, i["metadata"]["name"], i["metadata"].get("namespace", "")) for i in items]


async def _identified(
    s: session.Session, named: Sequence[tuple[api_resources.Resource, str, str]], *, lenient: bool
) -> list[_ObjectToDelete]:
    """Return the objects to delete with their uids.

    The uid keeps an object that is created again under the same name from being deleted.
    """
    found = []
    missing: kube_errors.NotFound | None = None
    for served, name, namespace in named:
        path = s.path(served, name, namespace=namespace)
        try:
            live = await s.ask("GET", path)
        except kube_errors.NotFound as error:
            if not lenient:
                if missing is not None:
                    click.echo(f"error: {missing}", err=True)
                missing = error
            continue
        found.append(
            _ObjectToDelete(served, name, namespace, path, live["metadata"].get("uid", ""))
        )
    if missing is not None:
        await _delete(s, found, lenient=lenient, form=None)
        raise missing
    return found


async def _delete(
    s: session.Session, victims: Sequence[_ObjectToDelete], *, lenient: bool, form: str | None
) -> list[_ObjectToDelete]:
    done = []
    for victim in victims:
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": victim.uid},
        }
        try:
            await s.ask("DELETE", victim.path, body=body)
        except kube_errors.NotFound:  # deleted a moment ago with its definition or owner
            if not lenient:
                click.echo(f"{victim.text} is already gone", err=True)
            continue
        click.echo(victim.text if form == "name" else f"{victim.text} deleted")
        done.append(victim)
    return done


async def _until_gone(
    s: session.Session, victims: Sequence[_ObjectToDelete], *, timeout_s: float | None
) -> None:
    deadline = None if timeout_s is None else s.clock.monotonic() + timeout_s
    for victim in victims:
        subject = object_waits.WaitSubject(victim.resource, victim.name, victim.namespace)
        left = None if deadline is None else max(0.0, deadline - s.clock.monotonic())
        text = f"waiting for {victim.text} to be gone"
        with contextlib.suppress(kube_errors.NotFound):  # its kind no longer exists
            await object_waits.until(s, subject, _another(victim.uid), text=text, timeout_s=left)


def _another(uid: str) -> object_waits.Test:
    """Return a test that is true once the object with this uid is gone.

    Another object may have taken its name by then.
    """
    return lambda found: found is None or found["metadata"].get("uid") != uid
