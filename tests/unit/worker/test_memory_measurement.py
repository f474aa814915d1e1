"""The kernel's files about memory, of both versions of cgroups, as they look in a container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import processes
from kilnwork.worker import memory_measurement

OUTSIDE = "/kubepods/pod1/abc"


def process(tmp_path: Path, cgroup: str, mount: str) -> Path:
    """A directory like /proc/PID."""
    made = tmp_path / "process"
    made.mkdir()
    (made / "cgroup").write_text(cgroup)
    (made / "mountinfo").write_text("22 1 0:21 / /proc rw - proc proc rw\n" + mount)
    return made


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / f"memory.{name}").write_text(text)


def version_1(tmp_path: Path, root: str = "/") -> Path:
    mount = tmp_path / "memory"
    mount.mkdir()
    return process(
        tmp_path,
        f"4:cpu:/elsewhere\n3:hugetlb,memory:{OUTSIDE}\n0::/\n",
        f"32 31 0:32 {root} {mount} rw,relatime - cgroup cgroup rw,memory\n",
    )


def version_2(tmp_path: Path, path: str = OUTSIDE, root: str = "/") -> Path:
    mount = tmp_path / "unified"
    mount.mkdir()
    return process(
        tmp_path, f"0::{path}\n", f"32 31 0:32 {root} {mount} rw master:1 - cgroup2 cgroup2 rw\n"
    )


def test_files_of_cgroup_version_1(tmp_path: Path) -> None:
    found_by = version_1(tmp_path)
    own = tmp_path / "memory" / OUTSIDE.lstrip("/")
    write(
        own,
        limit_in_bytes="1000\n",
        usage_in_bytes="900\n",
        max_usage_in_bytes="950\n",
        stat="cache 700\ntotal_inactive_file 200\ntotal_active_file 100\n",
        oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )
    write(own.parent, limit_in_bytes="9223372036854771712\n", usage_in_bytes="5000\n")
    groups = memory_measurement.groups(found_by)
    assert [group.directory for group in groups][:2] == [own, own.parent]
    assert groups[-1].directory == tmp_path / "memory"
    assert [group.limit() for group in groups[:2]] == [1000, None]
    assert groups[0].used(precise_from=901) == 900
    assert groups[0].used(precise_from=900) == 600
    assert (groups[0].peak(), groups[0].oom_kills()) == (950, 3)


def test_files_of_cgroup_version_2(tmp_path: Path) -> None:
    found_by = version_2(tmp_path)
    own = tmp_path / "unified" / OUTSIDE.lstrip("/")
    write(
        own,
        max="max\n",
        current="900\n",
        stat="file 700\ninactive_file 200\nactive_file 100\n",
        events="low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n",
    )
    write(own.parent, max="2000\n", current="1500\n")
    groups = memory_measurement.groups(found_by)
    assert [group.limit() for group in groups[:2]] == [None, 2000]
    assert groups[0].used(precise_from=0) == 600
    assert (groups[0].peak(), groups[0].oom_kills()) == (None, 1)
    (own / "memory.events").write_text("oom_kill 2\n")
    assert groups[0].oom_kills() == 2, "files that stay open are read again"


@pytest.mark.parametrize(("path", "root"), [("/", "/"), (OUTSIDE, OUTSIDE), ("/../x", "/")])
def test_container_finds_its_own_cgroup_at_the_mount(tmp_path: Path, path: str, root: str) -> None:
    found_by = version_2(tmp_path, path, root)
    write(tmp_path / "unified", max="7\n", current="1\n")
    assert [group.limit() for group in memory_measurement.groups(found_by)] == [7]


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_measurement.groups(version_2(tmp_path)) == []
    assert memory_measurement.groups(tmp_path / "nowhere") == []


def test_memory_of_processes_is_added_up() -> None:
    program = "import sys; held = bytearray(64 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        pids = memory_measurement.family(os.getpid(), processes.read_all())
        assert {os.getpid(), child.pid} <= pids
        for size in (
            memory_measurement.estimate([child.pid]),
            memory_measurement.share_of([child.pid]),
        ):
            assert 64 << 20 <= size < 128 << 20
        child.communicate()
    assert memory_measurement.estimate([child.pid]) == memory_measurement.share_of([child.pid]) == 0
