"""REST API of tasks under `/v1`: lists, reads, cancels and retries tasks, and explains their
states.

It serves all tasks of the journal, both declared and spawned. `GET /v1/endpoints` tells a client
with a valid token where the channel is. `/v1/tasks`, `/v1/task-counts` and `/v1/prune` are for all
namespaces what the paths below are for one.

| path below /v1/namespaces/NS | |
|---|---|
| GET /clusters | TaskClusters to which tasks can be submitted |
| GET /tasks | list, newest first: `declared`, `state`, `parent`, `function`, `limit`, `continue` |
| GET /task-counts | number of tasks by function and state |
| GET /tasks/REF | one task by name, id, or first or last digits; `wait=SECONDS` waits for its end |
| GET /tasks/REF/result | result as bytes, with their type; 409 unless the task has succeeded |
| GET /tasks/REF/logs | output of the task: `follow`, `run`, `attempt`, `tail` |
| GET /tasks/REF/why | one sentence, and the Python error if there is one |
| /dataponds/NAME/… | nodes and leases of a DataPond, see `pond_api` |
| GET /jobs/NAME/indexes | indexes of a Job, by number: `after`, `limit`, `state` |
| GET /syncsets/NAME/steps | steps of a SyncSet: `step`, `state`, `generation`, `after`, `limit` |
| GET /syncsets/NAME/result | result of the SyncSet's flow: `generation` |
| GET /jobconfigs/NAME/options | JSON Schema of the values of the JobConfig's options |
| POST /tasks/REF/cancel | cancel a task |
| DELETE /tasks/REF | delete a finished task that is not an object, with its runs and output |
| POST /prune | delete finished tasks: `olderThan`, `keep`, `free`, `keyed`, `dryRun` |
| POST /tasks/REF/suspend, /resume | suspend a spawned task, so that no attempt starts; resume it |
| POST /tasks/REF/retry | start a new run of a spawned task; `force` if it has succeeded |
| POST /tasks/REF/retry?failed=true | start new runs of the failed tasks in or around this task |

An ASGI app. Authentication is done by the app that mounts it; `ports.Rights` authorizes.
"""

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kilnwork import version
from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.kit import asgi, clock, ids
from kilnwork.server import (
    abbreviated_ids,
    errors,
    job_index_list,
    job_option_schemas,
    log_reader,
    pond_api,
    ports,
    problems,
    results,
    state_explanations,
    steps,
    task_documents,
)

POLL_S = 0.1
"""Interval in seconds at which a log that is followed is checked for more output. Files are read,
not watched: a quiet log costs one read of zero bytes."""
MAX_NAMED = 20
"""Number of namespaces checked for the error message if the requested namespace does not exist."""

MAX_WAIT_S = 60
MAX_LIMIT = 1000
MAX_AGE_S = 100 * 366 * 86_400
MAX_KEPT = 1_000_000_000

_Handler = Callable[[asgi.Request, model.TaskView, asgi.Response], Awaitable[None]]


class Api:
    """ASGI app of the `/v1` paths.

    `channel` is the path of the dispatcher's Unix socket, and `blobs` the root of the directories
    of blobs. `worker_dir` is the directory of workers that run on this machine with the same
    Python. `time` is used only for texts and deadlines. The other parameters are ports.
    """

    def __init__(  # noqa: PLR0913 - its ports, and where things are
        self,
        journal: ports.Journal,
        rights: ports.Rights,
        clusters: ports.Clusters,
        *,
        jobs: ports.Jobs,
        outputs: ports.Outputs,
        ponds: pond_api.Ponds,
        flows: ports.Flows,
        channel: str,
        blobs: Path,
        time: clock.Clock,
        worker_dir: str | None = None,
    ) -> None:
        self._outputs = outputs
        self._ponds = ponds
        self._channel = channel
        self._blobs = blobs
        self._worker_dir = worker_dir
        self._journal = journal
        self._rights = rights
        self._clusters = clusters
        self._clock = time
        self._indexes = job_index_list.Indexes(jobs, rights)
        self._steps = steps.Steps(flows, rights)
        self._option_schemas = job_option_schemas.OptionSchemas(jobs, rights)
        self._sets = {"tasks": self._list, "task-counts": self._counts, "prune": self._prune}
        self._subs: dict[tuple[str, str], _Handler] = {
            ("GET", ""): self._task,
            ("GET", "result"): self._result,
            ("GET", "logs"): self._logs,
            ("GET", "why"): self._why,
            ("POST", "cancel"): self._cancel,
            ("POST", "retry"): self._retry,
            ("DELETE", ""): self._forget,
            ("POST", "suspend"): functools.partial(self._suspend, suspended=True),
            ("POST", "resume"): functools.partial(self._suspend, suspended=False),
        }

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(self._route(request, response), request, response)

    async def _route(self, request: asgi.Request, response: asgi.Response) -> None:
        if request.user is None:
            raise errors.Unauthorized
        match request.segments:
            case ["v1", "endpoints"]:
                await self._endpoints(request, response)
            case ["v1", ("tasks" | "task-counts" | "prune") as kind]:
                await self._sets[kind](request, None, response)
            case ["v1", "namespaces", namespace, ("tasks" | "task-counts" | "prune") as kind]:
                await self._sets[kind](request, namespace, response)
            case ["v1", "namespaces", namespace, "clusters"]:
                await self._list_clusters(request, namespace, response)
            case ["v1", "namespaces", namespace, "tasks", ref, *sub] if len(sub) <= 1:
                await self._serve_task(request, (namespace, ref, sub[0] if sub else ""), response)
            case ["v1", "namespaces", namespace, "jobs", name, "indexes"]:
                await self._indexes.send(request, namespace, name, response=response)
            case ["v1", "namespaces", namespace, "syncsets", name, "steps"]:
                await self._steps.send(request, namespace, name, response=response)
            case ["v1", "namespaces", namespace, "syncsets", name, "result"]:
                await self._steps.send_result(request, namespace, name, response=response)
            case ["v1", "namespaces", namespace, "dataponds", name, *rest] if rest:
                await self._ponds.send(request, (namespace, name, rest), response)
            case ["v1", "namespaces", namespace, "jobconfigs", name, "options"]:
                await self._option_schemas.send(request, namespace, name, response=response)
            case _:
                raise errors.NotFound(
                    f"nothing is served at {request.path}: try /v1/namespaces/default/tasks"
                )

    async def _list(
        self, request: asgi.Request, namespace: str | None, response: asgi.Response
    ) -> None:
        if request.method != "GET":
            raise errors.MethodNotAllowed
        await self._check(request, ports.Question(verb="list", namespace=namespace or ""))
        page = self._journal.tasks(
            namespace,
            wanted=await self._parse_query(request, namespace),
            limit=request.number("limit", least=1, most=MAX_LIMIT) or 500,
            below=request.number("continue", least=1, most=1 << 62),
        )
        document: dict[str, object] = {"items": self._documents(page.tasks)}
        if page.more is not None:
            document["continue"] = str(page.more)
        await response.json(document)

    def _documents(self, views: Sequence[model.TaskView]) -> list[dict[str, Any]]:
        """Return the documents of tasks, with the names of their parents."""
        known: dict[ids.TaskId, model.TaskView | None] = {view.task: view for view in views}
        for view in views:
            if view.parent is not None and view.parent.task not in known:
                known[view.parent.task] = self._journal.view(view.parent.task)
        return [
            task_documents.task(
                view, parent=None if view.parent is None else known[view.parent.task]
            )
            for view in views
        ]

    async def _parse_query(self, request: asgi.Request, namespace: str | None) -> model.TaskQuery:
        state = request.query.get("state") or None
        if state is not None and state not in list(api_task.State):
            known = ", ".join(api_task.State)
            raise errors.BadRequest(f"state={state}: known states are {known}")
        parent = request.query.get("parent") or None
        if parent is not None and namespace is None:
            raise errors.BadRequest(f"parent={parent}: list one namespace, /v1/namespaces/NS/tasks")
        return model.TaskQuery(
            state=None if state is None else api_task.State(state),
            declared=None if "declared" not in request.query else request.flag("declared"),
            parent=None
            if parent is None
            else (await self._find_task(request, namespace or "", parent)).task,
            function=request.query.get("function") or None,
        )

    async def _counts(
        self, request: asgi.Request, namespace: str | None, response: asgi.Response
    ) -> None:
        if request.method != "GET":
            raise errors.MethodNotAllowed
        await self._check(request, ports.Question(verb="list", namespace=namespace or ""))
        await response.json(task_documents.counts(self._journal.counts(namespace)))

    async def _endpoints(self, request: asgi.Request, response: asgi.Response) -> None:
        if request.method != "GET":
            raise errors.MethodNotAllowed
        document: dict[str, Any] = {
            "version": version.__version__,
            "channel": {"unix": self._channel},
        }
        if self._worker_dir is not None:
            document["workers"] = {"python": sys.executable, "directory": self._worker_dir}
        await response.json(document)

    async def _list_clusters(
        self, request: asgi.Request, namespace: str, response: asgi.Response
    ) -> None:
        """Send the TaskClusters of a namespace to a user who may submit tasks there.

        If the namespace does not exist, the error lists the namespaces that the user may use.
        """
        if request.method != "GET":
            raise errors.MethodNotAllowed
        known = self._clusters.namespaces()
        if namespace not in known:
            tried = known[:MAX_NAMED]  # each check may be a request to the API server
            usable = [one for one in tried if await self._submits_to(request, one) is None]
            raise errors.NotFound(
                f'namespace "{namespace}" does not exist or is not served; those that you may use: '
                f"{', '.join(usable) or 'none'}{'' if tried == known else ', or others'}"
            )
        refused = await self._submits_to(request, namespace)
        if refused is not None:
            raise errors.Forbidden(refused)
        items = [msgspec.to_builtins(one) for one in self._clusters.clusters(namespace)]
        await response.json({"items": items})

    async def _submits_to(self, request: asgi.Request, namespace: str) -> str | None:
        question = ports.Question(verb="create", namespace=namespace)
        return await self._rights.refusal(request.user, question)

    async def _serve_task(
        self, request: asgi.Request, address: tuple[str, str, str], response: asgi.Response
    ) -> None:
        namespace, ref, sub = address
        handler = self._subs.get((request.method, sub))
        if handler is None:
            known = any(name == sub for _, name in self._subs)
            if known:
                raise errors.MethodNotAllowed
            raise errors.NotFound(
                f"a task has no {sub!r}: it has result, logs, why, cancel, suspend, resume and "
                "retry"
            )
        await self._check(request, _question(request.method, namespace, ref, sub=sub))
        await handler(request, await self._find_task(request, namespace, ref), response)

    async def _check(self, request: asgi.Request, question: ports.Question) -> None:
        """Check the caller's rights. Reading a log needs `get` on tasks/log or on tasks."""
        refused = await self._rights.refusal(request.user, question)
        if refused is not None and question.subresource:
            whole = ports.Question(
                verb=question.verb, namespace=question.namespace, name=question.name
            )
            refused = await self._rights.refusal(request.user, whole)
        if refused is not None:
            raise errors.Forbidden(refused)

    async def _find_task(self, request: asgi.Request, namespace: str, ref: str) -> model.TaskView:
        view = self._find_by_id_or_name(namespace, ref)
        if view is None and (digits := ids.abbreviated(ref)) is not None:
            view = await self._find_by_digits(request, namespace, digits)
        if view is None:
            raise errors.NotFound(
                f'the journal has no task "{ref}" in namespace "{namespace}": it may not have been '
                "accepted yet, or was forgotten"
            )
        return view

    def _find_by_id_or_name(self, namespace: str, ref: str) -> model.TaskView | None:
        try:
            view = self._journal.view(ids.task_id(ref))
        except ValueError:
            view = None
        if view is not None and view.namespace == namespace:
            return view
        return self._journal.find(namespace, ref)

    async def _find_by_digits(
        self, request: asgi.Request, namespace: str, digits: str
    ) -> model.TaskView | None:
        """Return the only task whose id begins or ends with `digits`. The caller needs the right to
        list tasks.
        """
        found = await self._journal.abbreviated(
            namespace, digits, limit=abbreviated_ids.MAX_SHOWN + 1
        )
        if not found:
            return None
        await self._check(request, ports.Question(verb="list", namespace=namespace))
        task = abbreviated_ids.find_only(digits, found)
        return None if task is None else self._journal.view(task)

    async def _task(
        self, request: asgi.Request, view: model.TaskView, response: asgi.Response
    ) -> None:
        wait_s = request.number("wait", least=0, most=MAX_WAIT_S) or 0
        deadline = self._clock.monotonic() + wait_s
        while not view.state.final and self._clock.monotonic() < deadline:
            if await request.disconnected(within_s=POLL_S):
                return
            view = self._journal.view(view.task) or view
        await response.json(self._documents([view])[0])

    async def _result(
        self, request: asgi.Request, view: model.TaskView, response: asgi.Response
    ) -> None:
        await results.send(view, self._blobs, request, response)

    async def _why(self, _: asgi.Request, view: model.TaskView, response: asgi.Response) -> None:
        found = task_documents.facts(view, memory=self._memory_of(view))
        sentence = state_explanations.sentence(found, now=self._clock.wall())
        facts = {"state": view.state, "reason": view.reason, "message": view.message}
        used = (
            state_explanations.usage_sentence(found).strip() or None if view.state.final else None
        )
        document = {"why": sentence, **facts, "used": used, "error": task_documents.error(view)}
        await response.json({key: value for key, value in document.items() if value is not None})

    def _memory_of(self, view: model.TaskView) -> str:
        """Return the memory of the workers of the task's cluster, or "" if it is unknown."""
        if view.usage is None or view.usage.peak_bytes is None:
            return ""
        known = self._clusters.clusters(view.namespace)
        return next((one.memory or "" for one in known if one.name == view.cluster), "")

    async def _cancel(self, _: asgi.Request, view: model.TaskView, response: asgi.Response) -> None:
        await self._journal.kill(view.task)
        after = self._journal.view(view.task) or view
        await response.json(task_documents.task(after), status=202)

    async def _suspend(
        self,
        _: asgi.Request,
        view: model.TaskView,
        response: asgi.Response,
        *,
        suspended: bool,
    ) -> None:
        if view.declared:
            raise errors.Conflict(
                f"task {view.name} is an object: change its spec.suspend, as `kiln suspend` does"
            )
        await self._journal.suspend(view.task, suspended=suspended)
        after = self._journal.view(view.task) or view
        await response.json(task_documents.task(after), status=202)

    async def _retry(
        self, request: asgi.Request, view: model.TaskView, response: asgi.Response
    ) -> None:
        if view.declared:
            raise errors.Conflict(
                f"task {view.name} is an object: raise its spec.run, as `kiln retry` does"
            )
        failed, force = request.flag("failed"), request.flag("force")
        if failed and force:
            raise errors.UnprocessableContent("failed and force: give one of them")
        retried = None
        try:
            if failed:
                retried = await self._journal.retry_failed(view.task)
            else:
                await self._journal.retry(view.task, force=force)
        except dispatch_errors.RunRefused as error:
            raise errors.Conflict(str(error)) from error
        after = self._journal.view(view.task) or view
        document = task_documents.task(after)
        if retried is not None:
            document["retried"] = task_documents.retried(retried)
        await response.json(document, status=202)

    async def _forget(self, _: asgi.Request, view: model.TaskView, response: asgi.Response) -> None:
        try:
            await self._journal.forget(view.task)
        except dispatch_errors.RunRefused as error:
            raise errors.Conflict(str(error)) from error
        await response.json(task_documents.task(view))

    async def _prune(
        self, request: asgi.Request, namespace: str | None, response: asgi.Response
    ) -> None:
        """Delete finished tasks of a namespace, or of all namespaces if `namespace` is None."""
        if request.method != "POST":
            raise errors.MethodNotAllowed
        verb = "list" if request.flag("dryRun") else "deletecollection"
        await self._check(request, ports.Question(verb=verb, namespace=namespace or ""))
        asked = model.Pruning(
            older_s=request.number("olderThan", least=0, most=MAX_AGE_S) or 0,
            namespace=namespace,
            keep=request.number("keep", least=0, most=MAX_KEPT),
            free_bytes=request.number("free", least=1, most=1 << 60),
            keyed=request.flag("keyed"),
        )
        pruned = await self._journal.prune(asked, dry_run=request.flag("dryRun"))
        document = {
            "tasks": pruned.tasks,
            "sizeBytes": pruned.size_bytes,
            "laterBytes": pruned.later_bytes,
        }
        await response.json({**document, "dryRun": request.flag("dryRun")})

    async def _logs(
        self, request: asgi.Request, view: model.TaskView, response: asgi.Response
    ) -> None:
        run = request.number("run", least=1, most=view.run) or view.run
        attempt = request.number("attempt", least=1, most=1_000_000)
        _check_attempt(view, run, attempt)
        tail = request.number("tail", least=0, most=10_000_000)
        follow = request.flag("follow")
        place = _LogPlace(view, run, attempt, tail)
        if not view.state.final:
            await self._outputs.catch_up(place.ref)
        await response.start(200, asgi.TEXT)
        if follow:
            await self._follow(request, place, response)
        else:
            with self._reader(place) as reader:
                await _send_available(reader, response)
        await response.end()

    def _reader(self, place: "_LogPlace") -> log_reader.LogReader:
        ref = place.ref
        path = self._journal.log_file(ref.task, run=ref.run, attempt=ref.attempt)
        return log_reader.LogReader(path, tail=place.tail)

    async def _follow(
        self, request: asgi.Request, place: "_LogPlace", response: asgi.Response
    ) -> None:
        """Send the existing output of an attempt, and its new output as it arrives.

        Unless the client has chosen an attempt, the output of the next attempts follows.
        """
        while True:
            ended = await self._follow_attempt(request, place, response)
            if ended is None or place.attempt is not None or ended.run != place.run:
                return
            if ended.state.final and ended.attempt == place.view.attempt:
                return
            place = _LogPlace(ended, place.run, None, None)

    async def _follow_attempt(
        self, request: asgi.Request, place: "_LogPlace", response: asgi.Response
    ) -> model.TaskView | None:
        """Send the output of one attempt, and return the state of its task after that, or None if
        the client has disconnected.
        """
        number = place.ref.attempt
        async with self._outputs.following(place.ref):
            with self._reader(place) as reader:
                while True:
                    now = self._journal.view(place.view.task) or place.view
                    over = now.state.final or now.run != place.run or now.attempt > number
                    await _send_available(reader, response)
                    if over:
                        return now
                    if await request.disconnected(within_s=POLL_S):
                        return None


def _check_attempt(view: model.TaskView, run: int, attempt: int | None) -> None:
    """Raise an error if the attempt never existed, and so has no log.

    This is checked for the newest run only, since the number of attempts of an older run is not
    known here.
    """
    if attempt is None or run != view.run or attempt <= view.attempt:
        return
    if view.state.final:
        raise errors.BadRequest(f"attempt={attempt}: the task had {view.attempt}")


class _LogPlace:
    """The log to be read: that of an attempt of a run of a task, or of its newest attempt if
    `attempt` is None.
    """

    def __init__(
        self, view: model.TaskView, run: int, attempt: int | None, tail: int | None
    ) -> None:
        self.view = view
        self.run = run
        self.attempt = attempt
        self.tail = tail

    @property
    def ref(self) -> attempts.AttemptRef:
        """Reference to the attempt; by default to the newest one when the task was last read,
        number 0 before the first attempt.
        """
        return attempts.AttemptRef(self.view.task, self.run, self.attempt or self.view.attempt)


async def _send_available(reader: log_reader.LogReader, response: asgi.Response) -> None:
    while data := reader.read():
        await response.write(data)


def _question(method: str, namespace: str, ref: str, *, sub: str) -> ports.Question:
    if method == "DELETE":
        return ports.Question(verb="delete", namespace=namespace, name=ref)
    if sub in ("cancel", "retry", "suspend", "resume"):
        return ports.Question(verb="patch", namespace=namespace, name=ref)
    subresource = "log" if sub == "logs" else ""
    return ports.Question(verb="get", namespace=namespace, name=ref, subresource=subresource)
