"""What an attempt leaves behind: whose it is, and that it is gone.

In a process of its own, since the worker waits for every child.
"""

import pytest

from support import python_subprocess

PROGRAM = """
import asyncio, os, signal, subprocess, sys, time
from kilnwork.kit import processes
from kilnwork.worker import orphans, reaper

def start(marker, script):
    environment = {**os.environ, orphans.MARKER: marker}
    return subprocess.Popen(
        ["/bin/sh", "-c", script], env=environment, start_new_session=True,
        stdout=subprocess.PIPE,
    )

def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

async def left_by(waiter, known, marker, script):
    "Start a root that prints the pid of what it leaves, and wait for its end."
    root = start(marker, script)
    ended = waiter.watch(root.pid)
    root.returncode = 0  # or Popen would wait for it, too
    registered = known.register(root.pid, marker=marker)
    pid = int(root.stdout.readline())
    return registered, ended, pid

async def main():
    waiter = reaper.Reaper()
    waiter.start()
    known = orphans.Orphans(waiter)
    async with asyncio.timeout(30):
        await story(waiter, known)
    waiter.stop()
"""

LEAVE = "sleep 60 >/dev/null & echo $!"


def run(story: str) -> str:
    body = "\n".join(f"    {line}" for line in story.strip().splitlines())
    return python_subprocess.run(
        f"{PROGRAM}\nLEAVE = {LEAVE!r}\nasync def story(waiter, known):\n{body}\n"
        "asyncio.run(main())\n"
    )


@pytest.mark.parametrize(
    "script",
    [
        LEAVE,
        "setsid sleep 60 >/dev/null & echo $!",
        "env -i setsid sleep 60 >/dev/null & echo $!",
        "(sleep 60 >/dev/null & echo $!) & wait",
    ],
)
def test_orphans_are_killed_however_they_hide(script: str) -> None:
    story = f"""
root, ended, pid = await left_by(waiter, known, "a", {script!r})
await ended
print(alive(pid), await known.clear(root), alive(pid))
"""
    assert run(story) == "True True False"


def test_without_orphans_there_is_proof_at_once() -> None:
    story = """
root, ended, pid = await left_by(waiter, known, "a", "echo $$")
await ended
print(await known.clear(root))
"""
    assert run(story) == "True"


def test_processes_of_another_attempt_are_kept() -> None:
    story = """
other, other_ended, kept = await left_by(waiter, known, "other", LEAVE + "; sleep 60")
root, ended, pid = await left_by(waiter, known, "a", LEAVE)
await ended
print(await known.clear(root), alive(pid), alive(kept))
os.killpg(other.pid, signal.SIGKILL)
await other_ended
print(await known.clear(other), alive(kept))
"""
    assert run(story) == "True False True\nTrue False"


def test_orphan_that_cannot_be_killed_is_no_proof_and_is_not_awaited_again() -> None:
    story = """
orphans.PATIENCE_S = 0.1
orphans._kill = lambda pids, groups: None
root, ended, pid = await left_by(waiter, known, "a", LEAVE)
await ended
print(await known.clear(root))
later, ended, _ = await left_by(waiter, known, "b", "echo $$")
await ended
print(await known.clear(later))
os.kill(pid, signal.SIGKILL)
"""
    assert run(story) == "False\nTrue"
