"""Job views: handlers that send documents of single jobs, pages of jobs, parts, and the manifest.

Used by `app`. The handlers read from memory or by an index; of the views, only `?wait=` waits for a
change.
"""

from urllib import parse

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import context, documents, downloads, http_resource_base

PAGE = 100
MAX_LIMIT = 1000
MAX_WAIT_S = 60

Links = tuple[tuple[bytes, bytes], ...]


class JobViews:
    """Handlers that send documents of jobs and parts."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared

    async def show_job(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the document of a job: GET /jobs/ID. With `wait=SECONDS` it is sent when the job has
        ended, or after that time.
        """
        request.check_known("wait")
        view = await self._shared.find_job(request, "get")
        wait_s = 0
        if request.scope["query_string"]:
            wait_s = request.number("wait", least=0, most=MAX_WAIT_S) or 0
        if wait_s and not view.phase.final:
            view = await self._waited(view, wait_s)
        await self._shared.send_job(request, response, view)

    async def _waited(self, view: file_job_types.JobView, wait_s: float) -> file_job_types.JobView:
        time = self._shared.clock
        deadline = time.monotonic() + wait_s
        while not view.phase.final and (left := deadline - time.monotonic()) > 0:
            newer = await self._shared.jobs.wait_for_change(
                view.namespace, view.id, version=view.version, timeout_s=left
            )
            if newer is None:
                raise errors.NotFound(f'job "{view.id}" has been deleted')
            view = newer
        return view

    async def list_jobs(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send a page of jobs as an array, newest first: GET /jobs. A `Link` header names the next
        page (RFC 8288, `rel="next"`).
        """
        request.check_known("phase", "name", "limit", "after", "allNamespaces")
        namespace = None
        if request.flag("allNamespaces"):
            await self._shared.check_everywhere(request, "list")
            if "namespace" in request.query:
                request.warnings.append(
                    "namespace is ignored: allNamespaces=true lists all of them"
                )
        else:
            namespace = await self._shared.check(request, "list")
        limit = request.number("limit", least=1, most=MAX_LIMIT) or PAGE
        wanted = file_job_types.JobQuery(
            phase=request.choice("phase", filejobs.FileJobPhase), name=request.text("name")
        )
        after = request.text("after")
        try:
            views, more = self._shared.jobs.jobs(namespace, wanted=wanted, limit=limit, below=after)
        except (ValueError, OverflowError) as error:
            raise errors.BadRequest(
                f"after={str(after)[:100]}: take the address of the next page from Link"
            ) from error
        data = b",".join(self._shared.encode_document(view).rstrip() for view in views)
        link = () if more is None else _link(request, "/jobs", more)
        await response.send(200, asgi.JSON, b"[" + data + b"]\n", headers=link)

    async def list_parts(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send a page of a job's parts as an array, in order: GET /jobs/ID/parts."""
        self._shared.require_token(request)
        request.check_known("state", "limit", "after")
        view = await self._shared.find_job(request, "get")
        limit = request.number("limit", least=1, most=MAX_LIMIT) or PAGE
        found = await self._shared.jobs.parts(
            view.namespace,
            view.id,
            after=request.number("after", least=0, most=filejobs.MAX_PARTS) or 0,
            limit=limit,
            state=request.choice("state", file_job_types.PartState),
        )
        data = msgspec.json.encode([documents.part(one) for one in found]) + b"\n"
        link: Links = ()
        if len(found) == limit and found[-1].part.number < view.parts.total:
            link = _link(request, f"/jobs/{parse.quote(view.id)}/parts", str(found[-1].part.number))
        await response.send(200, asgi.JSON, data, headers=link)

    async def show_manifest(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the parts of a job's input, and their results so far: GET /jobs/ID/manifest."""
        self._shared.require_token(request)
        request.check_known()
        view = await self._shared.find_job(request, "get")
        found = self._shared.jobs.manifest(view.namespace, view.id)
        commits = await self._shared.jobs.commits(view.namespace, view.id)
        shown = documents.manifest(found, commits)
        with self._shared.limits.download(request.user_name):
            data = await self._shared.run(lambda: msgspec.json.encode(shown) + b"\n")
            await response.send(200, asgi.JSON, data)
            del data
            await downloads.wait_until_read(request)


def _link(request: http_resource_base.JobRequest, path: str, after: str) -> Links:
    query = {**request.query, "after": after}
    return ((b"link", f'<{path}?{parse.urlencode(query)}>; rel="next"'.encode("ascii")),)
