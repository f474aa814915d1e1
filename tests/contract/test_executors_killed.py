"""A manager that gets a real SIGKILL at one step of an attempt after the other."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from kilnwork.kit import ids
from support import executor_subjects, pages, short

FATAL = (
    "before POST pod",
    "after POST pod",
    "after started",
    "before finished",
    "after finished",
    "after DELETE pod",
)
"""As lives of the manager come to them: each goes on where the one before ended."""


async def test_killed_at_one_step_after_the_other_it_starts_one_pod_once() -> None:
    folder = short.folder()
    home = short.folder()
    task = ids.task_text(ids.new_task_id())
    async with executor_subjects.on_pods(folder) as subject:
        for step in FATAL:
            done = await a_life(home, folder / "kubeconfig", task, step)
            assert done.returncode == -signal.SIGKILL, f"{step}: {done.stdout}{done.stderr}"
            if step == "after started":
                (home / "gate").touch()
        done = await a_life(home, folder / "kubeconfig", task, "")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[:3] == ["Success", "1", "0"]
        assert await subject.objects() == []
    assert (home / "starts").read_text() == f"{task}/1/1\n"


async def a_life(
    home: Path, kubeconfig: Path, task: str, step: str
) -> subprocess.CompletedProcess[str]:
    """A manager until its end."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "support.executor_process", str(home), str(kubeconfig), task, step],
        env={**os.environ, "PYTHONPATH": str(pages.ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
