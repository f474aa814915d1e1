"""Jobs app: routes each path of the Jobs API to its handler, on Starlette's router.

Created by the composition roots, mounted under `/jobs` and `/files`. Its routes are ASGI apps
(`http_resource_base.Resource`), not functions of Starlette's requests: that saves a third of the
cost of each request, and bodies are read as they arrive.
"""

import asyncio
import functools
import logging
from concurrent import futures

from starlette import routing

from kilnwork.data.stores import port
from kilnwork.jobs import file_job_service
from kilnwork.kit import asgi, clock, coroutines
from kilnwork.server import ports
from kilnwork.server.jobs import (
    context,
    control,
    downloads,
    http_resource_base,
    input_writer,
    job_views,
    openapi,
    rate_limits,
    settings,
    submit,
    upload_handlers,
    watch,
)

log = logging.getLogger(__name__)

PREFIXES = ("/jobs", "/files")
"""Paths under which the app is mounted."""

_JOBS, _JOB, _OPENAPI = "/jobs", "/jobs/{job}", "openapi.json"

THREADS = 8
"""Number of threads for file access: more than cores, since they wait for disks."""

FORGET_EVERY_S = 3600.0


class App:
    """ASGI app of the Jobs API. Create it in a running event loop, and call `close` at the end.

    `jobs` is the service of file jobs, which must be started before the app is created and stopped
    after it is closed. `clusters` lists the existing namespaces and TaskClusters.
    """

    def __init__(
        self,
        jobs: file_job_service.FileJobs,
        rights: ports.Rights,
        clusters: ports.Clusters,
        *,
        time: clock.Clock,
        chosen: settings.JobsApiSettings | None = None,
    ) -> None:
        chosen = chosen or settings.JobsApiSettings()
        self._pool = futures.ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-files")
        store: port.Store = jobs.store
        self._shared = context.HandlerContext(
            jobs=jobs,
            rights=rights,
            clusters=clusters,
            clock=time,
            settings=chosen,
            limits=rate_limits.RequestLimits(chosen, time),
            room=input_writer.DiskRoom(store),
            pool=self._pool,
        )
        self._files = upload_handlers.Files(self._shared)
        found = make_resources(self._shared, self._files)
        self._jobs, self._job = found[_JOBS], found[_JOB]
        self._router = routing.Router(
            [routing.Route(path, resource) for path, resource in found.items()],
            redirect_slashes=False,
            default=http_resource_base.send_not_found,
        )
        self._background = coroutines.BackgroundWork("jobs-api")
        self._background.start("delete stale uploads", self._delete_stale_uploads())

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        found = match_frequent_path(scope["path"])
        if found is None:
            await self._router(scope, receive, send)
        else:
            scope["path_params"] = found
            await (self._job if found else self._jobs)(scope, receive, send)

    async def close(self) -> None:
        """Stop background work; call this when all requests have ended."""
        await self._background.stop()
        stop = functools.partial(self._pool.shutdown, cancel_futures=True)
        await asyncio.to_thread(stop)

    def delete_stale(self) -> int:
        """Delete uploads that received nothing for a day; return the number of deleted uploads.
        Blocks.
        """
        return self._files.delete_stale()

    async def _delete_stale_uploads(self) -> None:
        while True:
            try:
                count = await self._shared.run(self.delete_stale)
            except Exception:
                log.exception("old uploads were not removed")
            else:
                if count:
                    log.info("old uploads removed", extra={"uploads": count})
            await asyncio.sleep(FORGET_EVERY_S)


def match_frequent_path(path: str) -> dict[str, str] | None:
    """Return the path parameters if `path` is `/jobs` (no parameters) or `/jobs/{job}`, else None.

    These two paths are the most frequent, and this takes a tenth of the time of the routing table.
    """
    if path == _JOBS:
        return {}
    before, _, name = path.rpartition("/")
    return {"job": name} if before == _JOBS and name and name != _OPENAPI else None


def make_resources(
    shared: context.HandlerContext, uploaded: upload_handlers.Files
) -> dict[str, http_resource_base.Resource]:
    """Return the resource of each path. The first path that matches is used: `/jobs/openapi.json`
    precedes `/jobs/{job}`, and frequent paths precede rare ones.
    """
    show, download = job_views.JobViews(shared), downloads.Downloads(shared)
    steer, new = control.Control(shared), submit.Submit(shared, uploaded)
    page = openapi.OpenApiPage(shared)
    handlers: dict[str, dict[str, http_resource_base.Handler]] = {
        f"{_JOBS}/{_OPENAPI}": {"GET": page.document},
        _JOB: {"GET": show.show_job, "PATCH": steer.patch, "DELETE": steer.delete},
        _JOBS: {"GET": show.list_jobs, "POST": new.post},
        "/jobs/{job}/results": {"GET": download.results},
        "/jobs/{job}/parts": {"GET": show.list_parts},
        "/jobs/{job}/errors": {"GET": download.bad_records},
        "/jobs/{job}/manifest": {"GET": show.show_manifest},
        "/jobs/{job}/input": {"GET": download.input},
        "/jobs/{job}/watch": {"GET": watch.Watch(shared).watch},
        "/jobs/{job}/cancel": {"POST": steer.cancel},
        "/jobs/{job}/suspend": {"POST": steer.suspend},
        "/jobs/{job}/pause": {"POST": steer.suspend},
        "/jobs/{job}/resume": {"POST": steer.resume},
        "/jobs/{job}/retry": {"POST": steer.retry},
        "/jobs/{job}/redrive": {"POST": steer.retry},
        "/files": {"GET": uploaded.list_uploads, "POST": uploaded.post},
        "/files/{file}": {
            "GET": uploaded.get,
            "HEAD": uploaded.head,
            "PATCH": uploaded.patch,
            "DELETE": uploaded.delete,
        },
    }
    return {path: http_resource_base.Resource(found, path=path) for path, found in handlers.items()}
