"""Tasks on a full disk: the journal keeps its space, and lost output is reported."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from support import small_disks, waiting
from support import up_server as up_support

DISK_MIB = 96
SPARE_BYTES = (DISK_MIB << 20) // 20


@kiln.task
def print_much(mebibytes: int) -> int:
    """Print lines of 1 KiB."""
    for _ in range(mebibytes << 10):
        print("x" * 1023)
    return mebibytes


@kiln.task(max_losses=1, retry_delay=0.1)
def return_much(mebibytes: int) -> bytes:
    """Return random bytes."""
    return os.urandom(mebibytes << 20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    with small_disks.mounted(tmp_path, mib=DISK_MIB) as disk:
        made = up_support.UpServer(disk / "data", workdir=tmp_path, slots=2)
        made.log = tmp_path / "server.log"
        try:
            made.start()
            yield made
        finally:
            made.stop()


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def test_full_disk_limits_output_and_results_with_a_notice(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    with kiln.connect():
        filler = server.data.parent / "filler"
        filler.write_bytes(b"x" * (free_bytes(server.data) - SPARE_BYTES - (8 << 20)))
        large = return_much.submit(16)
        with pytest.raises(kiln.TaskLost, match=r"ResultLost: .* kept for the journal"):
            large.result(60)
        chatty = [print_much.submit(4) for _ in range(6)]
        assert [future.result(60) for future in chatty] == [4] * 6
        assert free_bytes(server.data) > SPARE_BYTES / 4
        assert server.ready()
        for future in chatty:
            text = server.kiln("logs", future.id).stdout
            whole = text.count("x") == 4096 * 1023
            assert whole or "part of this output was lost: the disk was full" in text
        filler.unlink()
        done = server.kiln("retry", large.id, "--failed", "--wait")
        assert done.returncode == 0
    waiting.wait_until(server.ready, what="the server is ready")
