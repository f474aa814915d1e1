"""Real processes: nothing started under a marker escapes it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import processes
from support import waiting

MARKER = "KILN_TEST_MARKER"

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.closerange(1, 3)
        time.sleep(60)
    os._exit(0)
os.wait()
"""


def test_a_daemon_that_left_session_and_parent_is_found_and_killed() -> None:
    marker = f"{MARKER}=daemon-{os.getpid()}"
    name, value = marker.split("=")
    done = subprocess.run(
        [sys.executable, "-c", DAEMON],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=True,
    )
    daemon = processes.identify(int(done.stdout))
    assert daemon is not None
    assert daemon.alive()
    assert daemon.pid in processes.find_members(None, marker=marker)
    assert processes.kill_members(None, marker=marker)
    waiting.wait_until(lambda: not daemon.alive(), what="the daemon is gone")


def test_process_started_before_is_no_member() -> None:
    marker = f"{MARKER}=since-{os.getpid()}"
    name, value = marker.split("=")
    with subprocess.Popen(["sleep", "60"], env={name: value}) as child:
        try:
            waiting.wait_until(
                lambda: processes.find_members(None, marker=marker) == {child.pid},
                what="it is marked",
            )
            started = processes.read_all()[child.pid].started
            assert processes.find_members(None, marker=marker, since=started) == {child.pid}
            assert processes.find_members(None, marker=marker, since=started + 1) == set()
        finally:
            child.kill()


def test_a_marker_matches_only_the_whole_entry() -> None:
    with subprocess.Popen(["sleep", "60"], env={MARKER: "one-more"}) as child:
        try:
            waiting.wait_until(
                lambda: child.pid in processes.find_marked(f"{MARKER}=one-more"),
                what="it is marked",
            )
            assert child.pid not in processes.find_marked(f"{MARKER}=one")
        finally:
            child.kill()


def test_a_reused_pid_is_another_process() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    assert me.alive()
    assert not processes.ProcessId(me.pid, me.started + 1).alive()


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = processes.identify(child.pid)
        assert identity is not None
        child.send_signal(signal.SIGKILL)
        waiting.wait_until(lambda: not identity.alive(), what="the killed child is a zombie")
        assert processes.find_members(child.pid, marker=f"{MARKER}=none") == set()


def test_descendants_are_found_through_several_parents() -> None:
    script = "sleep 60 & sh -c 'sleep 60 & wait' & wait"
    with subprocess.Popen(["sh", "-c", script]) as shell:
        try:
            waiting.wait_until(
                lambda: len(processes.descendants(shell.pid)) == 3, what="three descendants"
            )
        finally:
            assert processes.kill_members(shell.pid, marker=f"{MARKER}=none")


CHILD = """
import os, sys, time
import pytest

from kilnwork.kit import processes
parent = os.getpid()
if processes.fork() == 0:
    if sys.argv[1] == "late":
        os.close(1)
        while os.getppid() == parent:
            time.sleep(0.001)
    processes.rename("kiln-" + sys.argv[2])
    processes.die_with_parent(parent)
    print(os.getpid(), flush=True)
    time.sleep(60)
if sys.argv[1] == "early":
    time.sleep(60)
"""


def test_a_child_dies_with_its_parent_under_a_name_of_its_own() -> None:
    argv = [sys.executable, "-c", CHILD, "early", "test"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = processes.identify(int(parent.stdout.readline()))
        assert child is not None
        assert child.alive()
        assert Path(f"/proc/{child.pid}/comm").read_text() == "kiln-test\n"
        parent.kill()
    waiting.wait_until(lambda: not child.alive(), what="the child is gone")


def test_a_child_whose_parent_is_gone_already_dies_at_once() -> None:
    marker = f"{MARKER}=late-{os.getpid()}"
    name, value = marker.split("=")
    environment = {**os.environ, name: value}
    argv = [sys.executable, "-c", CHILD, "late", "test"]
    subprocess.run(argv, env=environment, check=True)
    waiting.wait_until(lambda: processes.find_marked(marker) == set(), what="the child is gone")


def test_of_many_markers_those_without_a_process_are_found() -> None:
    name, of = MARKER, os.getpid()
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: f"here-{of}"}) as process:
        try:
            here, gone = f"{name}=here-{of}", f"{name}=gone-{of}"
            waiting.wait_until(lambda: processes.find_marked(here), what="it is marked")
            assert processes.unused_markers([here, gone]) == {gone}
        finally:
            process.kill()


def test_processes_of_other_users_keep_no_other_from_its_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(pid: int, _: int) -> None:
        if pid == 2:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        signalled.append(pid)

    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", kill)
    processes.signal_all([1, 2, 3], signal.SIGKILL)
    assert signalled == [1, 3]
