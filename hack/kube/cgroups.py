"""The cgroups of nodes: one root for each sandbox, removed when it has ended.

Used by `sandbox` and `node`. The kernel keeps an empty cgroup until a process removes it, and
nothing inside the sandbox lives long enough: a process outside, the janitor, waits for its end. If
the janitor is killed too, the next sandbox sweeps. Version 1 (one tree for each controller, as on
the machines this was tried on) and version 2, which was not tried.
"""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
_NAME = re.compile(r"kilnwork-kube-(\d+)-(\d+)")
_REMOVE_S = 20.0


def name() -> str:
    """Return the cgroup name of the calling process: pid and start time, to see later whether it
    lives.
    """
    return f"kilnwork-kube-{os.getpid()}-{_started(os.getpid())}"


def trees() -> list[Path]:
    """Return the root of every hierarchy, including an empty one of version 2 beside those of
    version 1.
    """
    if (_TOP / "cgroup.controllers").exists():
        return [_TOP]
    return sorted(found for found in _TOP.iterdir() if (found / "cgroup.procs").exists())


def make(path: str) -> None:
    """Create a cgroup in every hierarchy, fit for the kubelet's `cgroupRoot`.

    A cpuset of version 1 accepts no process before both its files are filled.
    """
    for tree in trees():
        made = tree
        for part in path.strip("/").split("/"):
            before, made = made, made / part
            _enable(before)
            made.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (before / "tasks").exists() and (before / file).exists():
                    (made / file).write_text((before / file).read_text())


def _enable(directory: Path) -> None:
    """Enable the controllers for children of `directory` (version 2)."""
    controllers = directory / "cgroup.controllers"
    if controllers.exists() and not (directory / "tasks").exists():
        text = " ".join(f"+{found}" for found in controllers.read_text().split())
        with contextlib.suppress(OSError):
            (directory / "cgroup.subtree_control").write_text(text)


def remove(root: str) -> bool:
    """Remove a cgroup with all below it; return True when nothing of it is left."""
    left = False
    for tree in trees():
        top = tree / root
        for directory in sorted(top.rglob("*/"), reverse=True) if top.exists() else []:
            with contextlib.suppress(OSError):
                directory.rmdir()
        with contextlib.suppress(OSError):
            top.rmdir()
        left = left or top.exists()
    return not left


def sweep() -> None:
    """Remove the cgroups of sandboxes whose processes were all killed."""
    for tree in trees():
        for directory in tree.glob("kilnwork-kube-*"):
            found = _NAME.fullmatch(directory.name)
            if found and _started(int(found[1])) != int(found[2]):
                remove(directory.name)


class Janitor:
    """A process that removes `root` as soon as every other holder of its pipe has ended."""

    def __init__(self, root: str) -> None:
        ends, self._held = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                self._wait_and_remove(ends, root)
            os._exit(0)
        os.close(ends)

    def finish(self) -> None:
        """Wait until the janitor is done; every other holder of the pipe has ended."""
        os.close(self._held)
        os.waitpid(self._pid, 0)

    def _wait_and_remove(self, ends: int, root: str) -> None:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.close(self._held)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # a reader of our output must not wait for us
            os.dup2(nothing, descriptor)
        os.read(ends, 1)
        deadline = time.monotonic() + _REMOVE_S
        while not remove(root) and time.monotonic() < deadline:
            time.sleep(0.05)


def _started(pid: int) -> int | None:
    """Return the start time in ticks since boot (proc(5)); None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])
