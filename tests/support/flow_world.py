"""Flows on a dispatcher that the test steps, with a real journal.

Used by tests of `jobs.flows`. Its tasks call functions of a table, as `kilnwork.testing.run_flow`
does with the same table, so that both can be compared.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts, flow
from kilnwork.api import task as api_task
from kilnwork.jobs.flows import run_types
from kilnwork.sdk import exact_json
from support import index_job_world, job_world

_S = api_task.State

Functions = Mapping[str, Callable[..., Any]]

UID = str(uuid.UUID(int=1))


class FlowDispatcher(index_job_world.IndexDispatcher):
    """Dispatcher that calls the functions of its tasks. `calls` has the calls with arguments, in
    order.
    """

    def __init__(self, directory: Path, functions: Functions) -> None:
        super().__init__(directory)
        self.functions = functions
        self.calls: list[tuple[str, str]] = []
        self.dice: random.Random | None = None
        """Chooses the task to run next; None: the oldest."""

    def finish(self, entry: job_world.Entry) -> None:
        submission = entry.submission
        call = submission.spec.call
        assert call is not None, submission.name
        assert submission.arguments is not None
        args, kwargs = msgspec.json.decode(submission.arguments.data)
        self.ran.append(submission.name)
        self.calls.append((call.function, submission.arguments.data.decode()))
        try:
            value = self.functions[call.function](*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a function raises
            entry.failures += 1
            if entry.failures < submission.spec.retry.max_attempts:
                entry.state = _S.PENDING
            else:
                entry.state, entry.reason = _S.FAILED, "Raised"
                entry.message = f"{type(error).__name__}: {error}"
        else:
            data = exact_json.encode(value)
            assert data is not None
            entry.result, entry.state = attempts.Payload(attempts.JSON, data), _S.SUCCESS
        self.tell(entry)

    def step(self) -> bool:
        if self.writing or self.dice is None:
            return super().step()
        running = [one for one in self.tasks.values() if one.state is _S.RUNNING]
        queued = self.queued if len(running) < self.slots else []
        found = [*running, *queued]
        if not found:
            return False
        entry = self.dice.choice(found)
        (self.finish if entry.state is _S.RUNNING else self.begin)(entry)
        return True


class FlowWorld(index_job_world.IndexWorld):
    """Consecutive lives of the services in one directory."""

    def __init__(
        self, directory: Path, functions: Functions, *, fuse: job_world.Fuse | None = None
    ) -> None:
        super().__init__(directory, fuse=fuse)
        self.flowing = self.played = self.dispatcher = FlowDispatcher(directory, functions)
        self.dispatcher.fuse = self.fuse

    @property
    def flows(self) -> Any:
        return self.services.flows

    async def run(self, new: run_types.NewFlowRun) -> run_types.FlowRunView:
        """Start a run and return its view at the end."""
        await self.services.flows.start(new)
        return await self.over(new.key)

    async def over(self, key: run_types.FlowKey) -> run_types.FlowRunView:
        """Return the view of a finished run."""

        def final() -> bool:
            view = self.services.flows.view(key)
            return view is not None and view.phase.final

        await self.until(final, what=f"the end of {key}")
        found = self.services.flows.view(key)
        assert found is not None
        return found


def new(
    declared: Mapping[str, Any],
    *,
    data: Mapping[str, list[Any]] | None = None,
    generation: int = 1,
    **more: Any,
) -> run_types.NewFlowRun:
    """Return a run of a flow, on one group."""
    return run_types.NewFlowRun(
        uid=UID,
        namespace="ns",
        set_name="flow",
        generation=generation,
        flow=msgspec.convert(declared, flow.Flow),
        snapshots={
            name: run_types.SnapshotRef(name=name, digest=f"sha256:{name}", shards=shards)
            for name, shards in (data or {}).items()
        },
        clusters={"workers": "flow-g1-workers"},
        **more,
    )
