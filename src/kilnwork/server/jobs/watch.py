"""Watching of a job: sends the job's changes as server-sent events (WHATWG HTML §9.2).

Used by `app`. Each event is the whole current document of the job, and its id is the job's version:
a client that reconnects with `Last-Event-ID` gets no event twice, and always gets the last one.
Intermediate changes may be skipped. The stream ends when the job ends; a client that reconnects
after that gets 204, which stops an EventSource.
"""

from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server.jobs import context, http_resource_base

HEARTBEAT_S = 15.0
"""Interval between comments on an idle stream, so that proxies keep it open."""

PAUSE_S = 0.25
"""Minimum interval between two events, except for the last one; faster changes are merged."""

EVENT_STREAM = "text/event-stream; charset=utf-8"


class Watch:
    """Handler of the stream of a job's changes."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared

    async def watch(self, request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        """Send the changes of a job as a stream of events: GET /jobs/ID/watch."""
        self._shared.require_token(request)
        request.check_known()
        view = await self._shared.find_job(request, "get")
        seen = _seen(request, view)
        if seen == view.version and view.phase.final:
            await response.empty(204)
            return
        await response.start(200, EVENT_STREAM, headers=((b"x-accel-buffering", b"no"),))
        if request.method == "GET":
            await self._follow(request, response, view, seen=seen)
        await response.end()

    async def _follow(
        self,
        request: http_resource_base.JobRequest,
        response: asgi.Response,
        view: file_job_types.JobView,
        *,
        seen: int,
    ) -> None:
        if view.version == seen:
            await response.write(b": nothing new yet\n\n")
        while True:
            if view.version != seen:
                seen = view.version
                await response.write(self._event(view))
                if view.phase.final:
                    return
                await self._shared.jobs.wait_for_change(
                    view.namespace, view.id, version=seen, timeout_s=PAUSE_S, over=True
                )
            else:
                await response.write(b":\n\n")
            if await request.disconnected(within_s=0):
                raise asgi.Disconnected
            newer = await self._shared.jobs.wait_for_change(
                view.namespace, view.id, version=seen, timeout_s=HEARTBEAT_S
            )
            if newer is None:
                await response.write(b"event: deleted\ndata: {}\n\n")
                return
            view = newer

    def _event(self, view: file_job_types.JobView) -> bytes:
        data = self._shared.encode_document(view).rstrip()
        return b"event: job\nid: %d\ndata: %b\n\n" % (view.version, data)


def _seen(request: http_resource_base.JobRequest, view: file_job_types.JobView) -> int:
    """Return the version of the job that the client has; -1 if the client names none that this job
    has had.
    """
    text = request.header(b"last-event-id") or ""
    if asgi.is_number(text) and int(text) <= view.version:
        return int(text)
    return -1
