"""A manager that is killed by a real SIGKILL, at one step of an attempt after the other."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import ids
from support import (
    executor_subjects,
    http_test_server,
    object_subject,
    pages,
    peer_subjects,
    short_paths,
    workflow_subject,
)

SUBJECTS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "pod": ("pod", executor_subjects.on_pods),
    "object": ("book", object_subject.on_objects),
    "workflow": ("workflow", workflow_subject.on_workflows),
}
FATAL_STEPS = (
    "before POST {}",
    "after POST {}",
    "after started",
    "before finished",
    "after finished",
    "after DELETE {}",
)
"""As lives of the manager come to them: each goes on where the one before ended."""

HTTP_FATAL_STEPS = ("before run", "after started", "before finished")


KINDS = ["pod", "workflow", *(["object"] if os.environ.get("KILN_FAULT_RUNS") else [])]
"""An object is created, followed and released as a Workflow is: only in the long form."""


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
async def test_manager_killed_at_each_step_starts_one_object_once(kind: str) -> None:
    directory, home = short_paths.directory(), short_paths.directory()
    task = ids.task_text(ids.new_task_id())
    noun, on_subjects = SUBJECTS[kind]
    async with on_subjects(directory) as subject:
        where = str(directory / "kubeconfig")
        for step in FATAL_STEPS:
            await run_manager_until(kind, home, where, task=task, step=step.format(noun))
            if step == "after started":
                (home / "gate").touch()
        done = await run_manager(kind, home, where, task=task)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[:3] == ["Success", "1", "0"]
        assert await subject.objects() == []
    assert (home / "starts").read_text() == f"{task}/1/1\n"


@contextlib.asynccontextmanager
async def script_server() -> AsyncIterator[tuple[str, peer_subjects.Programs]]:
    """Serve HTTP requests that run scripts; yield its URL and the programs that run."""
    programs = peer_subjects.Programs()
    async with http_test_server.running() as site:
        peer_subjects.serve_scripts(site, programs)
        yield site.base, programs


async def test_manager_and_executor_killed_at_each_step_send_no_request_twice() -> None:
    """Manager and executor are one process here.

    The kill loses the request that it had sent. It is sent again as another attempt, since the
    request says that it may be repeated.
    """
    home = short_paths.directory()
    task = ids.task_text(ids.new_task_id())
    async with script_server() as (base, programs):
        for step in HTTP_FATAL_STEPS:
            if step == "before finished":
                (home / "gate").touch()
            await run_manager_until("http", home, base, task=task, step=step)
        done = await run_manager("http", home, base, task=task)
        assert done.returncode == 0, done.stderr
        state, attempt = done.stdout.split()[:2]
        assert state == "Success"
        assert programs.running == {}
    starts = (home / "starts").read_text().split()
    assert len(starts) == len(set(starts))
    assert starts[-1] == f"{task}/1/{attempt}"


async def run_manager_until(kind: str, home: Path, where: str, *, task: str, step: str) -> None:
    """Run a manager that kills itself at a step."""
    done = await run_manager(kind, home, where, task=task, step=step)
    assert done.returncode == -signal.SIGKILL, f"{step}: {done.stdout}{done.stderr}"


async def run_manager(
    kind: str, home: Path, where: str, *, task: str, step: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a manager until it ends, and return its exit code and output."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "support.executor_process", kind, str(home), where, task, step],
        env={**os.environ, "PYTHONPATH": str(pages.ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
