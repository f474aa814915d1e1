"""The status writer against a real API server, with a cache that lags behind."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, kinds, task
from kilnwork.controllers import status_writer
from kilnwork.kube import client, errors
from support import controller_world, embedded_server

NS = controller_world.NS


async def test_only_writes_over_a_foreign_change_conflict(
    tmp_path: Path,
) -> None:
    async with embedded_server.admin_client(tmp_path) as kube:
        await kube.create(kinds.TASKS, controller_world.body(kinds.TASKS, "a", spec={}), NS)
        seen = await kube.get(kinds.TASKS, "a", NS, type=task.Task)
        writer = status_writer.StatusWriter(kube, kinds.TASKS, task.TaskStatus)
        for state in ("Pending", "Running"):
            await writer.write(seen, task.TaskStatus(state=state))
        await kube.merge_patch(kinds.TASKS, "a", {"spec": {"suspend": True}}, NS)
        with pytest.raises(errors.Conflict):
            await writer.write(seen, task.TaskStatus(state="Success"))
        assert writer.current(seen).state == "Running"
        found = await kube.get(kinds.TASKS, "a", NS, type=task.Task)
    assert (found.status.state, found.spec.suspend) == ("Running", True)


async def test_version_seen_before_the_response_is_ours_or_reported(
    tmp_path: Path,
) -> None:
    async with embedded_server.admin_client(tmp_path) as kube:
        await kube.create(kinds.TASKS, controller_world.body(kinds.TASKS, "a", spec={}), NS)
        seen = await kube.get(kinds.TASKS, "a", NS, type=task.Task)
        early = Early(kube)
        writer = early.writer
        assert not writer.postpone(seen)  # nothing is being written
        assert not await writer.write(seen, task.TaskStatus(state="Pending"))
        assert early.postponed
        early.version = "1"  # not the version of the next write
        assert await writer.write(seen, task.TaskStatus(state="Running"))
        assert not writer.postpone(seen)


class Early:
    """A client whose watch is ahead of its responses."""

    def __init__(self, kube: client.Client) -> None:
        self._kube = kube
        self.version = ""
        self.postponed = False
        self.writer = status_writer.StatusWriter(self, kinds.TASKS, task.TaskStatus)  # type: ignore[arg-type]

    async def replace(self, kind: api_resources.Resource, body: Any, *, subresource: str) -> Any:
        response = await self._kube.replace(kind, body, subresource=subresource)
        stored = msgspec.convert(response, task.Task)
        version = self.version or stored.metadata.resource_version
        metadata = msgspec.structs.replace(stored.metadata, resource_version=version)
        self.postponed = self.writer.postpone(msgspec.structs.replace(stored, metadata=metadata))
        return response
