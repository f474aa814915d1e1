"""A flow engine that a test controls, for tests of the SyncSet controller."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.jobs.flows import run_types


class FakeFlows:
    """`started` in order; `move` publishes where a run is."""

    def __init__(self, *, wall: float) -> None:
        self.started: list[run_types.NewFlowRun] = []
        self.killed: list[tuple[int, str]] = []
        self.retried: list[tuple[int, int]] = []
        """Generation and run."""
        self.suspended: list[bool] = []
        self.views: dict[run_types.FlowKey, run_types.FlowRunView] = {}
        self.kept: dict[run_types.FlowKey, run_types.NewFlowRun] = {}
        self.instances: list[run_types.InstanceView] = []
        """Of every run."""
        self._wall = wall
        self._seq = 0
        self._changed: dict[run_types.FlowKey, int] = {}
        self._news = asyncio.Event()

    # What the controller calls

    async def start(self, new: run_types.NewFlowRun) -> run_types.FlowRunView:
        """Run it, unless it is known."""
        if new.key not in self.views:
            self.started.append(new)
            self.kept[new.key] = new
            self._publish(
                run_types.FlowRunView(
                    uid=new.uid,
                    namespace=new.namespace,
                    set_name=new.set_name,
                    generation=new.generation,
                    version=1,
                    phase=run_types.FlowPhase.RUNNING,
                    reason="",
                    message="",
                    suspended=False,
                    started=self._wall,
                    finished=None,
                    run=new.run,
                    steps={},
                )
            )
        return self.views[new.key]

    async def suspend(self, key: run_types.FlowKey, *, suspended: bool) -> None:
        self.suspended.append(suspended)
        self._publish(msgspec.structs.replace(self.views[key], suspended=suspended))

    async def kill(self, key: run_types.FlowKey, *, reason: str, message: str) -> None:
        view = self.views.get(key)
        if view is None or view.phase.final:
            return
        self.killed.append((key.generation, reason))
        self.move(key.generation, run_types.FlowPhase.KILLED, reason=reason, message=message)

    async def retry(self, key: run_types.FlowKey, *, run: int) -> run_types.FlowRunView | None:
        """Let it run again, unless it does already."""
        view = self.views.get(key)
        if view is None or not view.phase.final or view.run >= run:
            return view
        self.retried.append((key.generation, run))
        again = msgspec.structs.replace(
            view, phase=run_types.FlowPhase.RUNNING, reason="", message="", finished=None, run=run
        )
        self._publish(again)
        return again

    async def forget(self, key: run_types.FlowKey) -> None:
        self.views.pop(key, None)
        self.kept.pop(key, None)

    async def reshard(
        self, key: run_types.FlowKey, shards: Mapping[str, list[Any]]
    ) -> run_types.NewFlowRun | None:
        """All of it: no step reads anything."""
        run = self.kept[key]
        changed = {
            name: msgspec.structs.replace(run.snapshots[name], shards=documents)
            for name, documents in shards.items()
        }
        self.kept[key] = msgspec.structs.replace(run, snapshots={**run.snapshots, **changed})
        return self.kept[key]

    def view(self, key: run_types.FlowKey) -> run_types.FlowRunView | None:
        return self.views.get(key)

    def stored(self, key: run_types.FlowKey) -> run_types.NewFlowRun | None:
        return self.kept.get(key)

    async def steps(
        self, key: run_types.FlowKey, *, step: str = "", after: str = "", limit: int = 100
    ) -> list[run_types.InstanceView]:
        found = [one for one in self.instances if one.step == step]
        return found if not after else []

    def code(self) -> dict[str, set[bytes]]:
        return {}

    async def changes(self, since: int) -> tuple[int, list[run_types.FlowRunView]]:
        while self._seq <= since:
            self._news.clear()
            await self._news.wait()
        found = [key for key, seq in self._changed.items() if seq > since]
        return self._seq, [self.views[key] for key in found if key in self.views]

    # Controlled by the test

    def move(self, generation: int, phase: run_types.FlowPhase, **more: object) -> None:
        """The run of a generation is there now."""
        [view] = [v for v in self.views.values() if v.generation == generation]
        finished = self._wall if phase.final else None
        self._publish(msgspec.structs.replace(view, phase=phase, finished=finished, **more))

    def _publish(self, view: run_types.FlowRunView) -> None:
        self._seq += 1
        self.views[view.key] = view
        self._changed[view.key] = self._seq
        self._news.set()
