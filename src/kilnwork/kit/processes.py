"""Processes on this machine: their identity, their groups, and proof that all processes of a group
have ended.

Used by the local node (containers), the worker (tasks and slots), the SDK (child processes of
drivers) and the command line. Linux only: it reads /proc, and `become_subreaper` makes the caller a
child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER), so that daemonised processes become its
children.

A pid alone does not identify a process, since pids are reused: a `ProcessId` adds the start time.
The processes of one container or attempt are found in three ways, so that neither a double fork nor
setsid(2) escapes: the descendants of its root, its process group, and every process whose *initial*
environment contains the marker it was started with (/proc/PID/environ).

Parentage is read from every /proc/PID/stat, not from /proc/PID/task/TID/children: many kernels lack
that file (CONFIG_PROC_CHILDREN), and it may leave out children while others exit (proc(5)).
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


class ProcessId(NamedTuple):
    """The identity of one process; `started` is in clock ticks since boot (proc(5), field 22)."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Return whether the process with this pid and start time is running; a zombie is not."""
        stat = _stat(self.pid)
        return stat is not None and stat.started == self.started and stat.running


class Stat(NamedTuple):
    """The state of a process: the fields of /proc/PID/stat that are used here; `started` as in
    `ProcessId`.
    """

    parent: int
    state: str
    started: int
    group: int
    session: int

    @property
    def running(self) -> bool:
        """Whether the process still runs, rather than being a zombie."""
        return self.state not in "ZX"


def _stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  half the time
            content = file.read(1024)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = content[content.rindex(b")") + 2 :].split(None, 20)
    return Stat(
        parent=int(fields[1]),
        state=fields[0].decode(),
        started=int(fields[19]),
        group=int(fields[2]),
        session=int(fields[3]),
    )


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process that has the pid now, or None if there is none."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat.started)


def become_subreaper() -> None:
    """Make this process the parent of its orphaned descendants, for which it must then wait."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL to this process when the thread that forked it ends, or at once
    if `parent` has ended already.

    This holds for this process alone, not for processes that it starts (prctl(2),
    PR_SET_PDEATHSIG).
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def offer_to_oom_killer(pid: int) -> None:
    """Make the OOM killer prefer a process, and processes that it starts, to others of the same
    size.

    Best effort. The call adds to the points, up to 1000, that a process has for its memory
    (proc_pid_oom_score_adj(5)).
    """
    path = _PROC / str(pid) / "oom_score_adj"
    with contextlib.suppress(OSError, ValueError):
        path.write_text(str(min(1000, int(path.read_text()) + 200)))


def rename(name: str) -> None:
    """Set the name of this process in `ps` and /proc/PID/comm; longer names are cut to 15 bytes."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def fork() -> int:
    """Fork this process; return 0 in the child, as fork(2) does.

    Only for processes with one thread and without an event loop.
    """
    return os.fork()  # noqa: TID251  this is the one place


def _prctl(option: int, argument: int | ctypes.c_char_p) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def all_pids() -> Iterator[int]:
    """Yield every pid visible in /proc, in no order."""
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def read_all() -> dict[int, Stat]:
    """Read the state of all processes, zombies included."""
    stats = ((pid, _stat(pid)) for pid in all_pids())
    return {pid: stat for pid, stat in stats if stat is not None}


def children(pid: int) -> list[int]:
    """Return the pids of the direct children of a process, zombies included."""
    return [child for child, stat in read_all().items() if stat.parent == pid]


def descendants(pid: int) -> set[int]:
    """Return the pids of all descendants of a process that no other process has adopted yet,
    zombies included.
    """
    return descendants_in({pid}, read_all())


def descendants_in(roots: set[int], stats: dict[int, Stat]) -> set[int]:
    """Return the pids of all descendants of `roots` within one reading of /proc, without the roots
    themselves.
    """
    families: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        families.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    front = list(roots)
    while front:
        front = [c for p in front for c in families.get(p, ()) if c not in found]
        found.update(front)
    return found


def find_marked(marker: str) -> set[int]:
    """Return the pids of live processes whose initial environment contains exactly the `NAME=value`
    entry `marker`.
    """
    return {pid for pid in all_pids() if _is_marked(pid, marker)}


def _is_marked(pid: int, marker: str) -> bool:
    return b"\0" + marker.encode() + b"\0" in b"\0" + _environment(pid)


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123  as in `_stat`
            return file.read()
    except OSError:
        return b""


def unused_markers(markers: Iterable[str]) -> set[str]:
    """Return the markers that no live process has, in two readings of /proc in a row.

    This is the proof of `kill_members`, for many attempts at once whose root processes have ended.
    """
    left = {marker.encode() for marker in markers}
    for _ in range(2):
        for pid in all_pids():
            left.difference_update(_environment(pid).split(b"\0"))
    return {marker.decode() for marker in left}


def find_members(
    root: int | None, *, marker: str, since: int = 0, session: int | None = None
) -> set[int]:
    """Return the pids of the live processes of one container or attempt: `root`, its group, its
    descendants, and all marked processes.

    Pass `root` only while its pid cannot have been reused: until it has been waited for. `since`:
    the start time (`ProcessId.started`) of the first of these processes; environments of older
    processes are not read, which would take most of the time on a machine with many processes.
    `session`: the session of a root that has been waited for; members of the session count if they
    are below this process, which becomes the parent of all of them. The number of a session is
    unique: the kernel does not reuse it while the session has a member (kernel/pid.c, free_pid).
    """
    stats: dict[int, Stat] = {}
    found = set()
    for pid in all_pids():
        if (stat := _stat(pid)) is None:
            continue
        stats[pid] = stat
        if stat.started >= since and _is_marked(pid, marker):
            found.add(pid)
    if root is not None:
        found |= {root} | {pid for pid, stat in stats.items() if stat.group == root}
    if session is not None and session not in stats:
        found |= {
            pid for pid in descendants_in({os.getpid()}, stats) if stats[pid].session == session
        }
    found |= descendants_in(found, stats)
    return {pid for pid in found if pid in stats and stats[pid].running}


def signal_all(pids: Iterable[int], signal_number: int) -> None:
    """Send a signal to each process.

    Skips processes that have ended meanwhile, and processes that this one may not signal, since
    they run as another user (setuid programs).
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def kill_members(
    root: int | None, *, marker: str, rounds: int = 50, since: int = 0, session: int | None = None
) -> bool:
    """Send SIGKILL to all processes of one container or attempt, until two readings of /proc in a
    row find none.

    Two readings, because a reading takes time, and a process that forks meanwhile may be missed.
    True proves that no process is left; False is returned after `rounds` readings (a process in
    uninterruptible sleep, or a fork bomb). The call does not wait: call it again later. `since`,
    `session`: see `find_members`.
    """
    empty = 0
    for _ in range(rounds):
        found = find_members(root, marker=marker, since=since, session=session)
        if not found:
            empty += 1
            if empty == 2:
                return True
            continue
        empty = 0
        signal_all(found, signal.SIGKILL)
    return False
