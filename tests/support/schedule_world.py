"""Schedules on a real API server, journal and controllers, with a settable clock and lives that end
at any write.

Used by tests of JobConfigs. There are no workers: the engine accepts Jobs, which wait.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kilnwork import controllers
from kilnwork.api import api_resources, job, job_config, kinds
from kilnwork.controllers import ports
from kilnwork.dispatch.hub import hub
from kilnwork.jobs import service_assembly
from kilnwork.kit import http_types
from kilnwork.kube import client, errors
from support import controller_world, embedded_server, hubs, waiting

NS = "default"
MINUTE = 60


class WallClock:
    """A clock whose wall time stands still until it is set; the monotonic time runs."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return time.monotonic()


class CrashedHere(Exception):
    """Raised in place of the kill of the manager."""


class Fuse:
    """Fires at the `after`-th write and at every one after it; None means never."""

    def __init__(self, after: int | None = None) -> None:
        self.left = after
        self.steps: list[str] = []
        self.blown = ""

    def burn(self, what: str) -> None:
        """Count one write, before it begins or right after it."""
        self.check()
        self.steps.append(what)
        if self.left is not None and len(self.steps) > self.left:
            self.blown = what
        self.check()

    def check(self) -> None:
        if self.blown:
            raise CrashedHere(self.blown)


class FusedClient(client.Client):
    """A client whose writes burn a fuse; kube events do not count."""

    fuse: Fuse

    async def raw(self, method: str, path: str, **given: Any) -> http_types.ClientResponse:
        counts = method != "GET" and not path.endswith("/events")
        if not counts:
            self.fuse.check()
            return await super().raw(method, path, **given)
        what = f"{method} {path.rpartition('/v1alpha1/')[2]}"
        self.fuse.burn(f"before {what}")
        response = await super().raw(method, path, **given)
        self.fuse.burn(f"after {what}")
        return response


class FusedJobs:
    """The engine's port, whose writes burn a fuse."""

    _WRITES = frozenset(
        {"put", "decide", "release", "forget_schedule", "set_hold", "kill", "rerun"}
    )

    def __init__(self, jobs: ports.JobHub, fuse: Fuse, gate: asyncio.Event) -> None:
        self._jobs, self._fuse, self._gate = jobs, fuse, gate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._jobs, name)
        if name not in self._WRITES:
            return found

        async def call(*args: Any, **given: Any) -> Any:
            if name == "put":
                await self._gate.wait()
            self._fuse.burn(f"before {name}")
            result = await found(*args, **given)
            self._fuse.burn(f"after {name}")
            return result

        return call


class World:
    """A data directory, an API server, and consecutive lives of a manager."""

    def __init__(self, directory: Path, kube: client.Client, settings: Any) -> None:
        self.kube, self.clock, self.fuse = kube, WallClock(), Fuse()
        self._directory, self._settings = directory, settings
        self._life = contextlib.AsyncExitStack()
        self.jobs_accepted = asyncio.Event()
        """While this is not set, Jobs are created but not passed to the engine."""
        self.jobs_accepted.set()
        self.hub: hub.Hub
        self.services: service_assembly.JobServices
        self.controllers: controllers.Controllers

    async def start(self, *, cut_at: int | None = None) -> None:
        """Start a life that ends at its `cut_at`-th write."""
        self.fuse = Fuse(cut_at)
        self.hub = hubs.make(self._directory, clock=self.clock)
        await self.hub.start(hubs.socket_of(self._directory))
        self._life.push_async_callback(self.hub.stop)
        self.services = service_assembly.JobServices(
            self._directory, self.hub.participation, clock=self.clock
        )
        await self.services.start()
        self._life.push_async_callback(self.services.stop)
        cut = FusedClient(self._settings)
        cut.fuse = self.fuse
        await self._life.enter_async_context(cut)
        self.controllers = controllers.Controllers(cut, controller_world.SETTINGS, time=self.clock)
        self._life.push_async_callback(self.controllers.stop)
        jobs: Any = FusedJobs(self.services.indexes, self.fuse, self.jobs_accepted)
        await self.controllers.start(self.hub, jobs)

    async def end(self) -> None:
        """End this life: unwritten changes are lost."""
        self.fuse.blown = self.fuse.blown or "the end"
        await self._life.aclose()

    async def restart(self) -> None:
        await self.end()
        await self.start()

    def set_clock(self, seconds: float) -> None:
        """Move the wall clock; the manager notices by itself."""
        self.clock.now += seconds

    async def config(self, name: str, **schedule: Any) -> str:
        """Create a JobConfig with a tick each minute; return its uid."""
        spec = {
            "concurrency": {"policy": "Allow"},
            "schedule": {"cron": {"expression": "* * * * *"}, **schedule},
            "template": {"spec": {"taskTemplate": {"command": ["true"]}}},
        }
        body = controller_world.body(kinds.JOB_CONFIGS, name, spec=spec)
        made = await self.kube.create(kinds.JOB_CONFIGS, body, NS)
        return str(made["metadata"]["uid"])

    async def refuse_jobs(self, *, refuse: bool = True) -> None:
        """Make the API server refuse new Jobs of schedules, or accept them again.

        An enumeration in the definition stands for quotas, policies and webhooks, which ours does
        not have.
        """
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/type/enum"
        allowed = ["Adhoc"] if refuse else ["Adhoc", "Scheduled"]
        change = {"op": "replace", "path": path, "value": allowed}
        name, kind = kinds.JOBS.qualified, api_resources.CUSTOM_RESOURCE_DEFINITIONS
        await self.kube.json_patch(kind, name, [change])

        async def done() -> bool:
            return await self._refuses() is refuse

        await self.until(done, "the API server goes by the changed kind")

    async def _refuses(self) -> bool:
        template = {"taskTemplate": {"command": ["true"]}}
        probe = controller_world.body(
            kinds.JOBS, "probe", spec={"type": "Scheduled", "template": template}
        )
        try:
            await self.kube.create(kinds.JOBS, probe, NS, dry_run=True)
        except errors.Invalid:
            return True
        return False

    async def read_config(self, name: str) -> job_config.JobConfig:
        return await self.kube.get(kinds.JOB_CONFIGS, name, NS, type=job_config.JobConfig)

    async def jobs(self) -> list[job.Job]:
        listed = await self.kube.list(kinds.JOBS, NS, type=job.Job)
        return list(listed.items)

    async def until(self, what: Callable[[], Any], why: str) -> None:
        await waiting.wait_until_async(what, what=why, timeout_s=20.0)

    async def wait_until_settled(self, uid: str, tick: int) -> None:
        """Wait until a schedule is decided up to a tick, and each tick that runs has its Job."""

        def done() -> bool:
            return self.is_settled(uid, tick)

        await self.until(done, f"schedule {uid} is decided up to {tick}, and has its Jobs")

    def is_settled(self, uid: str, tick: int) -> bool:
        """Return whether `settled` holds on disk."""
        indexes = self.services.indexes
        row = indexes.schedule(uid)
        if row is None or row.tick < tick or row.pending:
            return False
        return all(indexes.view(taken) is not None for taken in row.taken.values())

    async def count_runs(self, uid: str) -> dict[int, int]:
        """Return how often each tick of a JobConfig has run, by the API, the engine and the row of
        its schedule.

        Fails if these three differ.
        """
        owned = [
            one
            for one in await self.jobs()
            if any(owner.uid == uid for owner in one.metadata.owner_references)
        ]
        row = self.services.indexes.schedule(uid)
        taken = {} if row is None else dict(row.taken)
        counts: Counter[int] = Counter()
        for one in owned:
            tick = int(one.metadata.name.rpartition("-")[2])
            view = self.services.indexes.view(one.metadata.uid)
            assert view is not None, f"the engine does not have {one.metadata.name}"
            assert view.phase is not job.Phase.ADMISSION_ERROR, view.message
            assert taken.get(tick) == one.metadata.uid
            counts[tick] += 1
        _, views = await self.services.indexes.changes(0)
        assert len([view for view in views if view.group == uid]) == len(owned) == len(taken)
        return dict(counts)


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[World]:
    """Yield a world without a started manager; end its life afterwards."""
    async with embedded_server.control_plane(directory / "plane") as plane:
        settings = plane.admin_config()
        async with client.Client(settings) as kube:
            made = World(directory, kube, settings)
            try:
                yield made
            finally:
                await made.end()
                await asyncio.sleep(0)
