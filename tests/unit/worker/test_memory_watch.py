"""When the largest task is ended, and which ends the kernel explains."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kilnwork.kit import clock
from kilnwork.worker import memory_measurement, memory_watch
from support import waiting

MIB = 1 << 20
STAYS = "print(flush=True); sys.stdin.read()"
LEAVES = """
import os, threading, time
def rest():
    print(flush=True)
    time.sleep(600)
threading.Thread(target=rest).start()
import ctypes
ctypes.PyDLL(None).pthread_exit(None)
"""
"""Ends its first thread alone."""


class World:
    """A cgroup of version 2 that is files in a directory, and candidates that are real
    processes."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self.clock = clock.ManualClock()
        self.candidates: list[memory_watch.Candidate] = []
        self.ended: list[tuple[int, str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        (directory / "own").mkdir()
        (directory / "cgroup").write_text("0::/own\n")
        (directory / "mountinfo").write_text(f"1 1 0:1 / {directory} rw - cgroup2 cgroup2 rw\n")
        self.say(max="max", current="0", events="oom_kill 0", stat="inactive_file 0")

    def say(self, **files: str) -> None:
        for name, text in files.items():
            (self.directory / "own" / f"memory.{name}").write_text(f"{text}\n")

    def candidate(self, mib: int, *, program: str = "") -> int:
        """A process that uses so much, and then does what a program says; its number."""
        program = f"import sys; held = b'x' * ({mib} << 20)\n{program or STAYS}"
        child = self.stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        self.stack.callback(child.kill)
        assert child.stdout is not None
        child.stdout.readline()
        number = len(self.processes)
        self.processes.append(child)
        self.candidates.append(
            memory_watch.Candidate(child.pid, lambda text: self.ended.append((number, text)))
        )
        return number

    def watch(
        self,
        *,
        stated: int | None = None,
        share: float = 0.9,
        candidates: Callable[[], list[memory_watch.Candidate]] | None = None,
    ) -> memory_watch.MemoryWatch:
        return memory_watch.MemoryWatch(
            candidates or (lambda: self.candidates),
            stated=stated,
            share=share,
            groups=memory_measurement.groups(self.directory),
            clock=self.clock,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_largest_candidate_is_ended_near_the_cgroup_limit(world: World) -> None:
    world.candidate(10)
    large = world.candidate(60)
    world.say(max=str(100 * MIB), current=str(89 * MIB))
    watch = world.watch()
    assert watch.sample() == pytest.approx(1 / 2048, abs=0.01), "it looks again soon"
    assert world.ended == []
    world.say(current=str(91 * MIB))
    watch.sample()
    ((number, text),) = world.ended
    assert number == large
    assert "all of the worker used 91 MiB of its limit of 100 MiB" in text
    assert "at 90%" in text


def test_page_cache_does_not_count_as_used(world: World) -> None:
    world.candidate(60)
    world.say(max=str(100 * MIB), current=str(99 * MIB), stat=f"inactive_file {40 * MIB}")
    world.watch().sample()
    assert world.ended == []


def test_next_largest_is_ended_if_the_first_was_not_enough(world: World) -> None:
    first, second = world.candidate(60), world.candidate(50)
    world.say(max=str(100 * MIB), current=str(99 * MIB))
    watch = world.watch()
    for _ in range(3):
        watch.sample()
    assert [number for number, _ in world.ended] == [first], "its memory is on its way back"
    world.candidates.pop(0)
    world.processes[first].kill()
    world.processes[first].wait()
    watch.sample()
    assert [number for number, _ in world.ended] == [first], "what was read is from before"
    watch.sample()
    assert [number for number, _ in world.ended] == [first, second]


def test_nothing_is_ended_just_after_a_kernel_kill(world: World) -> None:
    world.candidate(20)
    large = world.candidate(60)
    world.say(max=str(100 * MIB), current=str(99 * MIB))

    def killed_meanwhile() -> list[memory_watch.Candidate]:
        """The kernel does it when the use has been read, and no process has been looked at."""
        world.processes[large].kill()
        world.processes[large].wait()
        world.say(current=str(30 * MIB))
        return world.candidates

    world.watch(candidates=killed_meanwhile).sample()
    assert world.ended == []


def test_nothing_is_ended_while_an_exiting_process_returns_its_memory(
    world: World,
) -> None:
    """It says that it uses none any more, and the group still counts all of it."""
    small, large = world.candidate(20), world.candidate(60, program=LEAVES)
    world.say(max=str(100 * MIB), current=str(99 * MIB))
    watch = world.watch()
    pid = world.processes[large].pid
    waiting.wait_until(lambda: "VmRSS" not in status(pid), what="its first thread has ended")
    watch.sample()
    world.clock.advance(memory_watch.GONE_S / 2)
    watch.sample()
    assert world.ended == []
    world.clock.advance(memory_watch.GONE_S)
    watch.sample()
    assert [number for number, _ in world.ended] == [small], "nothing is waited for so long"


def test_zombie_uses_no_memory(world: World) -> None:
    small, large = world.candidate(20), world.candidate(60)
    world.say(max=str(100 * MIB), current=str(99 * MIB))
    world.processes[large].kill()
    os.waitid(os.P_PID, world.processes[large].pid, os.WEXITED | os.WNOWAIT)
    world.watch().sample()
    assert [number for number, _ in world.ended] == [small]


def status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


def test_process_that_does_not_exit_does_not_stop_the_watch(world: World) -> None:
    first = world.candidate(60)
    world.say(max=str(100 * MIB), current=str(99 * MIB))
    watch = world.watch()
    watch.sample()
    world.clock.advance(memory_watch.GONE_S + 1)
    watch.sample()
    assert [number for number, _ in world.ended] == [first, first]


def test_small_candidate_is_not_ended_for_the_memory_of_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.candidate(1)
    world.say(max=str(10_000 * MIB), current=str(9_999 * MIB))
    watch = world.watch()
    for _ in range(3):
        watch.sample()
    assert world.ended == []
    assert caplog.text.count("not by tasks") == 1


def test_without_a_limit_nothing_is_ended(world: World) -> None:
    world.candidate(60)
    world.say(current=str(999 * MIB))
    assert world.watch().sample() == memory_watch.MAX_PAUSE_S
    world.say(max=str(100 * MIB))
    assert world.watch(share=0).sample() == memory_watch.MAX_PAUSE_S
    assert world.ended == []


def test_limit_stated_by_the_pod_applies_without_a_cgroup_limit(world: World) -> None:
    large = world.candidate(400)
    world.watch(stated=2000 * MIB).sample()
    assert world.ended == []
    world.watch(stated=420 * MIB).sample()
    assert [number for number, _ in world.ended] == [large]


def test_kernel_kill_explains_one_end(world: World) -> None:
    watch = world.watch()
    assert watch.explain_kill() == ""
    world.say(events="oom_kill 1", max=str(100 * MIB), peak=str(100 * MIB))
    assert watch.explain_kill() == (
        "the kernel ended it because the worker may use no more than 100 MiB of memory, of which "
        "it used up to 100 MiB"
    )
    assert watch.explain_kill() == ""


def test_old_unexplained_kernel_kill_is_forgotten(world: World) -> None:
    watch = world.watch()
    world.say(events="oom_kill 1")
    watch.sample()
    world.clock.advance(memory_watch.FRESH_S + 1)
    watch.sample()
    assert watch.explain_kill() == ""
    world.say(events="oom_kill 2")
    assert watch.explain_kill() == "the kernel ended it because the machine's memory was used up"
