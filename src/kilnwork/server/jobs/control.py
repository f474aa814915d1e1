"""Operations on a job: cancel, suspend, resume, retry, change, delete.

Used by `app`. When the response is sent, the operation is on disk. The response is the job after
the operation, except that of a deletion, which has no body.
"""

from collections.abc import Awaitable, Callable

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import body, context, http_resource_base, range_headers, strict_json

MERGE_PATCH = "application/merge-patch+json"
PATCH_BYTES = 64 << 10

_NOTHING = (b"", b"{}")
"""Empty bodies: some clients send an empty object with each POST."""

Action = Callable[[str, str], Awaitable[file_job_types.JobView]]


class Patch(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    kw_only=True,
):
    """Merge patch (RFC 7396) of the fields that may change in an existing job; null restores the
    default.
    """

    parallelism: filejobs.Parallelism | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_records: filejobs.Count | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_percent: filejobs.Percent | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds_after_finished: filejobs.Seconds | msgspec.UnsetType | None = msgspec.UNSET
    priority: filejobs.Priority | msgspec.UnsetType | None = msgspec.UNSET
    suspend: bool | msgspec.UnsetType | None = msgspec.UNSET


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Merge patch with the fields inside `spec`, as in a job's document."""

    spec: Patch


class Control:
    """Handlers of the operations on a job."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared

    async def cancel(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Cancel a job: POST /jobs/ID/cancel."""

        async def cancelled(namespace: str, job: str) -> file_job_types.JobView:
            return await self._shared.jobs.cancel(namespace, job, message="cancelled by a user")

        await self._run_action(request, response, cancelled)

    async def suspend(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Suspend a job: POST /jobs/ID/suspend; formerly /jobs/ID/pause, which still works."""
        await self._run_action(request, response, self._shared.jobs.pause)

    async def resume(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Resume a suspended job: POST /jobs/ID/resume."""
        await self._run_action(request, response, self._shared.jobs.resume)

    async def retry(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Run the failed parts of a job again: POST /jobs/ID/retry; formerly /jobs/ID/redrive,
        which still works.
        """
        await self._run_action(request, response, self._shared.jobs.redrive)

    async def _run_action(
        self, request: http_resource_base.JobRequest, response: asgi.Response, action: Action
    ) -> None:
        view = await self._find_job(request, "patch")
        if (await body.open_body(request).read(limit=PATCH_BYTES)).strip() not in _NOTHING:
            raise errors.BadRequest("this call takes no body: send none, or {}")
        await self._shared.send_job(
            request, response, await action(view.namespace, view.id), status=202
        )

    async def patch(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Change settings of a job: PATCH /jobs/ID."""
        kind = (request.header(b"content-type") or MERGE_PATCH).split(";")[0].strip().lower()
        if kind not in (MERGE_PATCH, asgi.JSON):
            raise errors.UnsupportedMediaType(
                f"Content-Type: {kind[:100]}: send {MERGE_PATCH}",
                headers=((b"accept-patch", MERGE_PATCH.encode()),),
            )
        view = await self._find_job(request, "patch")
        change = _parse_change(await body.open_body(request).read(limit=PATCH_BYTES))
        after = await self._shared.jobs.adjust(view.namespace, view.id, change)
        await self._shared.send_job(request, response, after)

    async def delete(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Delete a job: DELETE /jobs/ID. The job is invisible at once; its files are deleted soon
        after.
        """
        request.check_known()
        view = await self._shared.find_job(request, "delete")
        range_headers.check_match(request.header(b"if-match"), context.job_etag(view))
        await self._shared.jobs.delete(view.namespace, view.id)
        await response.empty(202, ((b"content-length", b"0"),))

    async def _find_job(
        self, request: http_resource_base.JobRequest, verb: str
    ) -> file_job_types.JobView:
        self._shared.require_token(request)
        request.check_known()
        view = await self._shared.find_job(request, verb)
        range_headers.check_match(request.header(b"if-match"), context.job_etag(view))
        return view


def _parse_change(data: bytes) -> file_job_types.Adjustment:
    try:
        given = strict_json.to_integers(strict_json.decode_object(data))
        if "spec" in given:
            patch = msgspec.convert(given, Whole).spec
        else:
            patch = msgspec.convert(given, Patch)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(Patch))
        raise errors.BadRequest(f"{error}; what can be changed: {known}") from error
    default = filejobs.FileJobSpec()
    return file_job_types.Adjustment(
        parallelism=patch.parallelism,
        max_failed_records=patch.max_failed_records,
        max_failed_percent=patch.max_failed_percent,
        ttl_seconds_after_finished=patch.ttl_seconds_after_finished,
        priority=default.priority if patch.priority is None else patch.priority,
        suspend=default.suspend if patch.suspend is None else patch.suspend,
    )
