"""Downloads of a job's files: its result, the results of single parts, its errors, its input.

Used by `app` and `job_views`. A response consists of one or several files of the store, in order.
Their sizes and digests are known beforehand, so that Content-Length, entity tag and ranges (RFC
9110 §14) apply to the whole. A file that differs from its record is refused, or the connection is
cut: a 200 is never short.
"""

import asyncio
from collections.abc import Sequence

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import context, file_bodies, http_resource_base

NDJSON = "application/x-ndjson"


class Downloads:
    """Handlers that send the files of a job."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared

    async def results(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the results of a job: GET /jobs/ID/results.

        By default, the whole result once it is published; with `part=N`, the result of that part;
        with `partial=true`, the results of the parts that have succeeded so far.
        """
        request.check_known("part", "partial")
        if "part" in request.query and "partial" in request.query:
            raise errors.BadRequest("part and partial: give one of them")
        view = await self._shared.find_job(request, "get")
        number, partial, whole = _part_number(request), request.flag("partial"), ""
        if number is not None:
            found = [await self._part(view, number)]
        elif partial:
            found = await self._committed_files(view, errors_too=False)
        elif view.progress.output is None:
            raise self._incomplete_error(view)
        elif view.progress.output.key == filejobs.OUTPUTS:
            found = await self._committed_files(view, errors_too=False)
            whole = view.progress.output.sha256
        else:
            found = [file_bodies.piece_of_file(view, view.progress.output)]
        await self._send(request, response, found, whole=whole)

    async def bad_records(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the errors file of a job: GET /jobs/ID/errors.

        It has one line per bad record, in order; with `partial=true`, the bad records found so far.
        """
        self._shared.require_token(request)
        request.check_known("partial")
        view = await self._shared.find_job(request, "get")
        partial = request.flag("partial")
        if not view.phase.final and not partial:
            raise self._incomplete_error(view)
        found = await self._committed_files(view, errors_too=True)
        await self._send(request, response, found)

    async def input(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Send the stored input of a job: GET /jobs/ID/input."""
        self._shared.require_token(request)
        request.check_known()
        view = await self._shared.find_job(request, "get")
        small = self._shared.jobs.small_input(view.namespace, view.id)
        key = f"{view.directory}/{file_job_types.DIRECTORY_INPUT}"
        await self._send(
            request,
            response,
            [file_bodies.Piece(key, view.progress.bytes, view.progress.sha256, small)],
        )

    async def _part(self, view: file_job_types.JobView, number: int) -> file_bodies.Piece:
        part = await self._shared.jobs.part(view.namespace, view.id, number)
        if part is None:
            text = f"part={number}: the parts of job {view.id} are 1 to {view.parts.total}"
            if self._shared.settings.source is not None:  # aksjobscheduler responds with 400
                raise errors.BadRequest(text)
            raise errors.NotFound(text)
        if part.commit is not None and part.commit.output is not None:
            return file_bodies.piece_of_file(view, part.commit.output)
        raise errors.Conflict(
            f"part {number} is {part.state}: {part.message or 'it has no result yet'}",
            members=self._shared.progress_members(view),
        )

    async def _committed_files(
        self, view: file_job_types.JobView, *, errors_too: bool
    ) -> list[file_bodies.Piece]:
        commits = await self._shared.jobs.commits(view.namespace, view.id)
        if errors_too:
            found = [one.errors for one in commits]
        else:
            good = filejobs.PartOutcome.SUCCEEDED
            found = [one.output if one.outcome == good else None for one in commits]
        return [file_bodies.piece_of_file(view, one) for one in found if one is not None]

    def _incomplete_error(self, view: file_job_types.JobView) -> errors.Conflict:
        if view.phase.final:
            text = (
                f"job {view.id} is {view.phase} and has no result: {view.message or view.reason}. "
                "What its parts have made is at ?partial=true; POST …/redrive runs the others again"
            )
        else:
            done, parts = view.parts.succeeded, view.parts.total
            text = f"job {view.id} is {view.phase}: {done} of {parts} parts are done"
        return errors.Conflict(text, members=self._shared.progress_members(view))

    async def _send(
        self,
        request: http_resource_base.JobRequest,
        response: asgi.Response,
        found: Sequence[file_bodies.Piece],
        *,
        whole: str = "",
    ) -> None:
        """Send files one after the other. `whole`: SHA-256 of all files together, if it is
        known.
        """
        await file_bodies.send(
            request,
            response,
            file_bodies.Body(found, NDJSON, whole),
            store=self._shared.store,
            pool=self._shared.pool,
            slot=self._shared.limits.download(request.user_name),
        )


async def wait_until_read(request: http_resource_base.JobRequest) -> None:
    """Wait until the client has read a response, and disconnect a client that does not read."""
    try:
        async with asyncio.timeout(file_bodies.STALL_S):
            await request.drained()
    except TimeoutError as error:
        await request.cut()
        raise asgi.Disconnected from error


def _part_number(request: http_resource_base.JobRequest) -> int | None:
    """Return the part number that a request names, or None if it names none.

    In aksjobscheduler 0, negative numbers and other texts stand for all parts; here they are
    refused.
    """
    return request.number("part", least=1, most=filejobs.MAX_PARTS)
