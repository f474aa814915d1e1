"""The writer of statuses against a real API server, with a cache that has not heard of them yet."""

from pathlib import Path

import pytest

from kilnwork.api import kinds, task
from kilnwork.controllers import status_writer
from kilnwork.kube import errors
from support import controlled, served

NS = controlled.NS


async def test_two_writes_from_one_look_do_not_conflict_but_one_over_another_does(
    tmp_path: Path,
) -> None:
    async with served.kube(tmp_path) as kube:
        await kube.create(kinds.TASKS, controlled.body(kinds.TASKS, "a", spec={}), NS)
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
