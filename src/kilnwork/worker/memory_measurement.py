"""Measurement of the memory that this worker may use and does use, from the kernel's files.

Used by `memory_watch` and `agent`. The limit is that of the container's cgroup (version 1 or 2) or
of a cgroup above it. Where no cgroup has a limit (on the local node, Pods are processes without
cgroups of their own), the limit is that which the Pod states, and the memory of its processes is
added up. Page cache that the kernel can reclaim does not count as used. This module only measures.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import processes

_MAX_READ_BYTES = 1 << 14
"""Maximum bytes that are read of one of the kernel's files."""

_UNLIMITED = 1 << 60
"""A limit of cgroup version 1 from which on it means "no limit": version 1 has no word for that,
and shows the largest multiple of a page.
"""


@dataclass(frozen=True, slots=True)
class _Names:
    """The file names of one cgroup version (kernel: admin-guide/cgroup-v1/memory, cgroup-v2)."""

    limit: str
    used: str
    peak: str
    events: str
    cache: tuple[bytes, bytes]


_V1 = _Names(
    limit="memory.limit_in_bytes",
    used="memory.usage_in_bytes",
    peak="memory.max_usage_in_bytes",
    events="memory.oom_control",
    cache=(b"total_inactive_file", b"total_active_file"),
)
_V2 = _Names(
    limit="memory.max",
    used="memory.current",
    peak="memory.peak",
    events="memory.events",
    cache=(b"inactive_file", b"active_file"),
)


class Group:
    """The memory files of one cgroup. All methods return None once the cgroup has been removed."""

    def __init__(self, directory: Path, names: _Names) -> None:
        self.directory = directory
        self._names = names
        self._open: dict[str, int] = {}

    def limit(self) -> int | None:
        """Return the memory limit of the cgroup in bytes, or None if it has no limit."""
        number = self._number(self._names.limit)
        return None if number is None or number >= _UNLIMITED else number

    def used(self, *, precise_from: int) -> int | None:
        """Return the bytes that the cgroup uses and the kernel cannot reclaim.

        The number is exact if at least `precise_from` bytes are used, else an upper bound.
        """
        used = self._number(self._names.used)
        if used is None or used < precise_from:
            return used
        counts = _counts(self._text("memory.stat"))
        return max(0, used - sum(counts.get(name, 0) for name in self._names.cache))

    def peak(self) -> int | None:
        """Return the highest memory use of the cgroup so far in bytes, page cache included; None in
        version 2 on kernels before 5.19.
        """
        return self._number(self._names.peak)

    def oom_kills(self) -> int | None:
        """Return how many processes of this cgroup the OOM killer has killed, at the cgroup's limit
        or at the machine's.
        """
        return _counts(self._text(self._names.events)).get(b"oom_kill")

    def _number(self, name: str) -> int | None:
        # In version 2 the text is "max" if there is no limit.
        text = self._text(name).strip()
        return int(text) if text.isdigit() else None

    def _text(self, name: str) -> bytes:
        """Return the content of a file of the cgroup, or b"" if it cannot be read.

        Files are kept open, since they are read often and opening one takes ten times as long.
        """
        try:
            if name not in self._open:
                self._open[name] = os.open(self.directory / name, os.O_RDONLY)
            # Reading from offset 0 makes the kernel compute the content again.
            return os.pread(self._open[name], _MAX_READ_BYTES, 0)
        except OSError:
            # ENODEV once the cgroup has been removed.
            return b""

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


def groups(process: Path = Path("/proc/self")) -> list[Group]:
    """Return the visible cgroups of a process: its own first, then those above it."""
    mounts = list(_mounts(process))
    paths = dict(_paths(process))
    # Version 1 first: hybrid hosts mount version 2 too, but without its memory controller.
    for names, kind in ((_V1, "memory"), (_V2, "")):
        for found, root, mount in mounts:
            if found == kind and kind in paths:
                directory = _directory(paths[kind], root, mount)
                if (directory / names.used).exists():
                    below = directory.relative_to(mount).parts
                    tree = [mount.joinpath(*below[:count]) for count in range(len(below), -1, -1)]
                    return [Group(each, names) for each in tree]
    return []


def machine_oom_kills() -> int | None:
    """Return how many processes of this machine the OOM killer has killed."""
    return _counts(_read(Path("/proc/vmstat"))).get(b"oom_kill")


def estimate(pids: Iterable[int]) -> int:
    """Return an estimate of the bytes that processes use.

    Fast: memory that processes share is counted once for each of them.
    """
    return sum(_of_status(pid) for pid in pids)


def share_of(pids: Iterable[int]) -> int:
    """Return the bytes that processes use, with shared memory counted once.

    Slow, since the kernel walks the page tables of the processes.
    """
    return sum(_kilobytes(_read(Path(f"/proc/{pid}/smaps_rollup")), b"Pss:") for pid in pids)


def is_leaving(pid: int) -> bool:
    """Return whether a process is exiting and has not returned its memory yet.

    Such a process reports no memory of its own while its cgroup still counts all of it (the kernel
    is in exit_mm, or other threads of the process have not got so far). A zombie has returned
    everything.
    """
    text = _read(Path(f"/proc/{pid}/status"))
    is_zombie = b"\nState:\tZ" in text and b"\nThreads:\t1\n" in text
    return bool(text) and not is_zombie and b"\nVmRSS:" not in text


def family(root: int, stats: dict[int, processes.Stat]) -> set[int]:
    return processes.descendants_in({root}, stats) | ({root} & stats.keys())


def _of_status(pid: int) -> int:
    """Return the resident anonymous and shared memory of a process, in bytes.

    File pages are not counted, because the kernel can reclaim them.
    """
    text = _read(Path(f"/proc/{pid}/status"))
    return _kilobytes(text, b"RssAnon:") + _kilobytes(text, b"RssShmem:")


def _kilobytes(text: bytes, name: bytes) -> int:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


def _counts(text: bytes) -> dict[bytes, int]:
    fields = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in fields if len(words) == 2 and words[1].isdigit()}


def _paths(process: Path) -> Iterator[tuple[str, str]]:
    """Yield the cgroups of a process as (controller, path).

    The controller is "memory" for version 1, "" for version 2.
    """
    for line in os.fsdecode(_read(process / "cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield "memory", path
        elif number == "0" and not controllers:
            yield "", path


def _mounts(process: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield mounted cgroup hierarchies as (controller as in `_paths`, cgroup at the mount, mount
    point); see proc(5).
    """
    for line in os.fsdecode(_read(process / "mountinfo")).splitlines():
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(), rest.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup" and "memory" in kind[2].split(","):
            yield "memory", words[3], Path(words[4])
        elif kind[0] == "cgroup2":
            yield "", words[3], Path(words[4])


def _directory(path: str, root: str, mount: Path) -> Path:
    """Return the directory of cgroup `path` in a mount whose root is cgroup `root`.

    A container sees its own cgroup at the mount point, but may know the cgroup by its name outside.
    """
    if root != "/" and path.startswith(root):
        path = path[len(root) :]
    directory = mount / path.lstrip("/")
    # The path of a cgroup outside the cgroup namespace contains "..".
    return directory if ".." not in directory.parts and directory.is_dir() else mount


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
