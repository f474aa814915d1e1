"""Renewal of the code blobs that JobConfigs, Jobs and SyncSets refer to, as long as these objects
exist.

Started by `assembly`. Code uploaded by `kiln deploy` and `submit` is a blob that no row of the
journal refers to until an index or a step gets its task, which may be months later. Therefore its
modification time is renewed, as by any holder of a blob (docs/decisions/0008). Not for results and
arguments, which rows refer to.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from kilnwork.api import flow, flow_program, job, names, task
from kilnwork.controllers import caches
from kilnwork.data import blob_renewal, local_blobs
from kilnwork.kit import clock

log = logging.getLogger(__name__)

AT_ONCE = 1000
"""Number of Job templates that are processed without a pause. This blocks the event loop for some
milliseconds."""


OfFlows = Callable[[], Mapping[str, set[bytes]]]
"""Returns the digests of the code blobs that flows need, by namespace."""


class CodeBlobs:
    """Renews the modification times of code blobs at intervals. `directory`: contains one directory
    of blobs for each namespace.
    """

    def __init__(self, known: caches.Caches, directory: Path, *, time: clock.Clock) -> None:
        self._caches = known
        self._directory = directory
        self._clock = time

    async def run(
        self, ready: Callable[[], Awaitable[None]], of_flows: OfFlows | None = None
    ) -> None:
        """Renew the referenced blobs periodically until cancelled, first as soon as `ready`
        returns.

        `of_flows`: returns the blobs of the flows that the engine has.
        """
        await ready()
        while True:
            try:
                await self.renew(of_flows)
            except OSError:
                log.exception("code of jobs was not renewed")
            await asyncio.sleep(blob_renewal.RENEW_S)

    async def renew(self, of_flows: OfFlows | None = None) -> None:
        """Renew the modification times of all code blobs that objects currently refer to."""
        named = await self._named()
        for namespace, digests in ({} if of_flows is None else of_flows()).items():
            named.setdefault(namespace, set()).update(digests)
        for namespace, digests in named.items():
            kept = local_blobs.Blobs(self._directory / namespace, durable=False, time=self._clock)
            await asyncio.to_thread(kept.touch_all, sorted(digests))

    async def _named(self) -> dict[str, set[bytes]]:
        """Return the digests of the code blobs that objects refer to, by namespace."""
        found: dict[str, set[bytes]] = {}
        templates = [
            (one.metadata, one.spec.template.spec) for one in self._caches.job_configs.list()
        ]
        templates += [
            (one.metadata, one.spec.template)
            for one in self._caches.jobs.list()
            if one.spec.template is not None
        ]
        for position, (metadata, template) in enumerate(templates, 1):
            found.setdefault(metadata.namespace, set()).update(code_digests(template))
            if position % AT_ONCE == 0:
                await asyncio.sleep(0)
        for one in self._caches.sync_sets.list():
            found.setdefault(one.metadata.namespace, set()).update(_flow_digests(one.spec.flow))
            await asyncio.sleep(0)
        return found


def code_digests(template: job.JobTemplate) -> Iterator[bytes]:
    """Yield the digests of the code and environment blobs of a Job template, including its hooks
    and its finalizer.
    """
    hooks = [hook.task_template for hook in template.hooks]
    finalizer = [] if template.finalizer is None else [template.finalizer.task_template]
    for one in (template.effective_task, *hooks, *finalizer):
        if one is not None and one.call is not None:
            yield from _call_digests(one.call)


def _call_digests(call: task.Call) -> Iterator[bytes]:
    for text in (call.code, call.environment):
        digest = names.digest(text)
        if digest is not None:
            yield digest


def _flow_digests(declared: flow.Flow) -> frozenset[bytes]:
    program, _ = flow_program.build(declared)
    return flow_program.code_digests(program)
