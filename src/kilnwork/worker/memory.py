"""How much memory this worker may use and does use, by the kernel's own files.

Used by `memory_watch`. A limit is that of the container's cgroup, version 1 or 2, or of a group
above it; where there is none (Pods of the local node are processes without a cgroup of their own),
it is the one that the Pod states, and what its processes use is added up. What the kernel can take
back by itself, its cache of files, is not counted as used. Decides nothing.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import processes

_MAX_READ_BYTES = 1 << 14
"""Of one of the kernel's files here."""

_UNLIMITED = 1 << 60
"""Version 1 has no word for "no limit": it gives the largest multiple of a page."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The files of one version of cgroups (kernel: admin-guide/cgroup-v1/memory, cgroup-v2)."""

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
    """A cgroup, as far as memory goes. Its files may vanish with it: then it says None."""

    def __init__(self, directory: Path, names: _Names) -> None:
        self.directory = directory
        self._names = names
        self._open: dict[str, int] = {}

    def limit(self) -> int | None:
        """Bytes; None for no limit."""
        number = self._number(self._names.limit)
        return None if number is None or number >= _UNLIMITED else number

    def used(self, *, precise_from: int) -> int | None:
        """Bytes that the kernel cannot take back; from so many on, below it is an upper bound."""
        used = self._number(self._names.used)
        if used is None or used < precise_from:
            return used
        counts = _counts(self._text("memory.stat"))
        return max(0, used - sum(counts.get(name, 0) for name in self._names.cache))

    def peak(self) -> int | None:
        """The most that was ever used, cache included; None for kernels before 5.19."""
        return self._number(self._names.peak)

    def oom_kills(self) -> int | None:
        """How many processes of this group the kernel has killed for memory, its own or the
        machine's."""
        return _counts(self._text(self._names.events)).get(b"oom_kill")

    def _number(self, name: str) -> int | None:
        text = self._text(name).strip()
        return int(text) if text.isdigit() else None

    def _text(self, name: str) -> bytes:
        """Files stay open, since they are read often: that takes a tenth of opening them."""
        try:
            if name not in self._open:
                self._open[name] = os.open(self.directory / name, os.O_RDONLY)
            return os.pread(self._open[name], _MAX_READ_BYTES, 0)
        except OSError:
            return b""

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


def groups(process: Path = Path("/proc/self")) -> list[Group]:
    """The cgroup of a process and those above it, as far as they are to be seen; own first."""
    mounts = list(_mounts(process))
    paths = dict(_paths(process))
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
    """How many processes of this machine the kernel has killed for memory."""
    return _counts(_read(Path("/proc/vmstat"))).get(b"oom_kill")


def estimate(pids: Iterable[int]) -> int:
    """Bytes that these processes use, quickly: what they share is counted for each of them."""
    return sum(_of_status(pid) for pid in pids)


def share_of(pids: Iterable[int]) -> int:
    """Bytes that these processes use: what they share is counted once. Walks their page tables."""
    return sum(_kilobytes(_read(Path(f"/proc/{pid}/smaps_rollup")), b"Pss:") for pid in pids)


def is_leaving(pid: int) -> bool:
    """Whether a process ends and its memory is on its way back: it says that it uses none, while
    its cgroup still counts all of it (exit_mm, or other threads of it that are not so far).

    A zombie has given back everything.
    """
    text = _read(Path(f"/proc/{pid}/status"))
    is_zombie = b"\nState:\tZ" in text and b"\nThreads:\t1\n" in text
    return bool(text) and not is_zombie and b"\nVmRSS:" not in text


def family(root: int, stats: dict[int, processes.Stat]) -> set[int]:
    return processes.descendants_in({root}, stats) | ({root} & stats.keys())


def _of_status(pid: int) -> int:
    """Not pages of files, which the kernel can drop."""
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
    """Of its cgroups: "memory" of version 1, "" of version 2."""
    for line in os.fsdecode(_read(process / "cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield "memory", path
        elif number == "0" and not controllers:
            yield "", path


def _mounts(process: Path) -> Iterator[tuple[str, str, Path]]:
    """Hierarchies that are mounted: as in `_paths`, the group at the mount, where (proc(5))."""
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
    """Of the group `path` where group `root` is mounted: a container sees its own at the mount,
    and may know it by the name that it has outside."""
    if root != "/" and path.startswith(root):
        path = path[len(root) :]
    directory = mount / path.lstrip("/")
    return directory if ".." not in directory.parts and directory.is_dir() else mount


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
