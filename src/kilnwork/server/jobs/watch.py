"""A job as it changes, as server-sent events (WHATWG HTML §9.2).

Used by `app`. Each event is the whole document as it is then, its id the job's version: whoever
comes back with `Last-Event-ID` hears nothing twice and misses no last word. In between changes may
be left out. The stream ends with the job; who then comes back is told that there is no more (204,
which stops an EventSource).
"""

from kilnwork.jobs import model
from kilnwork.kit import serving
from kilnwork.server import asgi
from kilnwork.server.jobs import calls, context

HEARTBEAT_S = 15.0
"""Between two comments on a quiet stream, so that proxies keep it open."""

PAUSE_S = 0.25
"""Between two events, but for the last one: what changes faster is shown by the next one."""

EVENT_STREAM = "text/event-stream; charset=utf-8"


class Watch:
    """The handler."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def watch(self, call: calls.Call, answer: calls.Answer) -> None:
        """GET /jobs/ID/watch."""
        self._shared.only_token(call)
        call.only()
        view = await self._shared.job(call, "get")
        seen = _seen(call, view)
        if seen == view.version and view.phase.final:
            await calls.empty(answer, 204)
            return
        await asgi.start(answer, 200, EVENT_STREAM, more=((b"x-accel-buffering", b"no"),))
        if call.method == "GET":
            await self._follow(call, answer, view, seen=seen)
        await asgi.body(answer, b"")

    async def _follow(
        self, call: calls.Call, answer: calls.Answer, view: model.JobView, *, seen: int
    ) -> None:
        if view.version == seen:
            await asgi.body(answer, b": nothing new yet\n\n", more=True)
        while True:
            if view.version != seen:
                seen = view.version
                await asgi.body(answer, self._event(view), more=True)
                if view.phase.final:
                    return
                await self._shared.jobs.changed(
                    view.namespace, view.id, version=seen, timeout_s=PAUSE_S, over=True
                )
            else:
                await asgi.body(answer, b":\n\n", more=True)
            if await call.query.gone(within_s=0):
                raise serving.Gone
            newer = await self._shared.jobs.changed(
                view.namespace, view.id, version=seen, timeout_s=HEARTBEAT_S
            )
            if newer is None:
                await asgi.body(answer, b"event: deleted\ndata: {}\n\n", more=True)
                return
            view = newer

    def _event(self, view: model.JobView) -> bytes:
        data = self._shared.document(view).rstrip()
        return b"event: job\nid: %d\ndata: %b\n\n" % (view.version, data)


def _seen(call: calls.Call, view: model.JobView) -> int:
    """The version that the client has; what was never one of this job counts as none."""
    text = call.header(b"last-event-id") or ""
    if asgi.is_number(text) and int(text) <= view.version:
        return int(text)
    return -1
