"""List of a Job's indexes, by number, in pages: `GET /v1/namespaces/NS/jobs/NAME/indexes`.

Mounted by `task_api`. The status of a Job has only counts and ranges; this lists all indexes of the
Job.
"""

from typing import Any

from kilnwork.api import kinds
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs import index_job_types
from kilnwork.kit import asgi, clock
from kilnwork.server import errors, object_authorization, ports

MAX_LIMIT = 1000
DEFAULT_LIMIT = 500
MAX_NUMBER = 1 << 31


class Indexes:
    """Handler of requests for the indexes of a Job. `jobs`, `rights`: ports."""

    def __init__(self, jobs: ports.Jobs, rights: ports.Rights) -> None:
        self._jobs = jobs
        self._rights = rights

    async def send(
        self, request: asgi.Request, namespace: str, name: str, *, response: asgi.Response
    ) -> None:
        """Send a page of indexes. The caller needs the right to `get` the Job."""
        await object_authorization.check(
            request, self._rights, resource=kinds.JOBS, namespace=namespace, name=name
        )
        limit = request.number("limit", least=1, most=MAX_LIMIT) or DEFAULT_LIMIT
        after = request.number("after", least=0, most=MAX_NUMBER)
        state = _state(request)
        uid = self._jobs.uid(namespace, name)
        if uid is None:
            raise errors.NotFound(f'there is no Job "{name}" in namespace "{namespace}"')
        try:
            found = await self._jobs.indexes(
                uid, after=-1 if after is None else after, limit=limit + 1, state=state
            )
        except jobs_errors.NoSuchJob:
            found = []  # the Job waits for a reference, or was refused: its indexes are not known
        page: dict[str, Any] = {"items": [document(index) for index in found[:limit]]}
        if len(found) > limit:
            page["after"] = found[limit - 1].number
        await response.json(page)


def document(view: index_job_types.IndexView) -> dict[str, Any]:
    """Return the document of one index, without members that have no value."""
    members = {
        "number": view.number,
        "label": view.label,
        "state": str(view.state),
        "task": view.task,
        "name": view.name,
        "run": view.run,
        "attempt": view.attempt or None,
        "podName": view.worker or None,
        "nodeName": view.node or None,
        "reason": view.reason or None,
        "message": view.message or None,
        "creationTime": _time(view.created),
        "startTime": _time(view.started),
        "finishTime": _time(view.finished),
    }
    return {name: value for name, value in members.items() if value is not None}


def _state(request: asgi.Request) -> index_job_types.IndexState | None:
    text = request.query.get("state") or None
    if text is None:
        return None
    try:
        return index_job_types.IndexState(text)
    except ValueError as error:
        known = ", ".join(index_job_types.IndexState)
        raise errors.BadRequest(f"state={text[:100]}: known states are {known}") from error


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else clock.rfc3339_micro(seconds)
