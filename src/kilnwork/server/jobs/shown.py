"""Documents: jobs one by one and in pages, parts, the manifest.

Used by `app`. Reads memory or does one indexed read; nothing here waits, but for `?wait=`.
"""

from urllib import parse

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import model
from kilnwork.server import errors
from kilnwork.server.jobs import calls, context, documents, downloads

PAGE = 100
MOST = 1000
MOST_WAIT_S = 60

Links = tuple[tuple[bytes, bytes], ...]


class Shown:
    """The handlers."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def one(self, call: calls.Call, answer: calls.Answer) -> None:
        """GET /jobs/ID; `wait=SECONDS` answers when it is over, or after that."""
        call.only("wait")
        view = await self._shared.job(call, "get")
        wait_s = 0
        if call.scope["query_string"]:
            wait_s = call.number("wait", least=0, most=MOST_WAIT_S) or 0
        if wait_s and not view.phase.final:
            view = await self._waited(view, wait_s)
        await self._shared.send(call, answer, view)

    async def _waited(self, view: model.JobView, wait_s: float) -> model.JobView:
        time = self._shared.clock
        deadline = time.monotonic() + wait_s
        while not view.phase.final and (left := deadline - time.monotonic()) > 0:
            newer = await self._shared.jobs.changed(
                view.namespace, view.id, version=view.version, timeout_s=left
            )
            if newer is None:
                raise errors.NotFound(f'job "{view.id}" has been deleted')
            view = newer
        return view

    async def many(self, call: calls.Call, answer: calls.Answer) -> None:
        """GET /jobs: an array, newest first, in pages (RFC 8288: `Link: …; rel="next"`)."""
        call.only("phase", "name", "limit", "after", "allNamespaces")
        namespace = None
        if call.flag("allNamespaces"):
            await self._shared.check_everywhere(call, "list")
            if "namespace" in call.query.query:
                call.warnings.append("namespace is ignored: allNamespaces=true lists all of them")
        else:
            namespace = await self._shared.check(call, "list")
        limit = call.number("limit", least=1, most=MOST) or PAGE
        wanted = model.Wanted(phase=call.word("phase", filejobs.Phase), name=call.text("name"))
        after = call.text("after")
        try:
            views, more = self._shared.jobs.jobs(namespace, wanted=wanted, limit=limit, below=after)
        except (ValueError, OverflowError) as error:
            raise errors.BadRequest(
                f"after={str(after)[:100]}: take the address of the next page from Link"
            ) from error
        data = b",".join(self._shared.document(view).rstrip() for view in views)
        link = () if more is None else _link(call, "/jobs", more)
        await calls.json(answer, b"[" + data + b"]\n", more=link)

    async def parts(self, call: calls.Call, answer: calls.Answer) -> None:
        """GET /jobs/ID/parts: an array in order, in pages."""
        self._shared.only_token(call)
        call.only("state", "limit", "after")
        view = await self._shared.job(call, "get")
        limit = call.number("limit", least=1, most=MOST) or PAGE
        found = await self._shared.jobs.parts(
            view.namespace,
            view.id,
            after=call.number("after", least=0, most=filejobs.MAX_PARTS) or 0,
            limit=limit,
            state=call.word("state", model.PartState),
        )
        data = msgspec.json.encode([documents.part(one) for one in found]) + b"\n"
        link: Links = ()
        if len(found) == limit and found[-1].part.number < view.parts.total:
            link = _link(call, f"/jobs/{parse.quote(view.id)}/parts", str(found[-1].part.number))
        await calls.json(answer, data, more=link)

    async def manifest(self, call: calls.Call, answer: calls.Answer) -> None:
        """GET /jobs/ID/manifest: what its input consists of, and its result so far."""
        self._shared.only_token(call)
        call.only()
        view = await self._shared.job(call, "get")
        found = self._shared.jobs.manifest(view.namespace, view.id)
        commits = await self._shared.jobs.commits(view.namespace, view.id)
        shown = documents.manifest(found, commits)
        with self._shared.limits.download(call.user_name):
            data = await self._shared.run(lambda: msgspec.json.encode(shown) + b"\n")
            await calls.json(answer, data)
            del data
            await downloads.taken(call)


def _link(call: calls.Call, path: str, after: str) -> Links:
    query = {**call.query.query, "after": after}
    return ((b"link", f'<{path}?{parse.urlencode(query)}>; rel="next"'.encode("ascii")),)
