"""A disk of a few MiB that tests can fill: a tmpfs mounted for one test, which needs root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, *, mib: int = 16) -> Iterator[Path]:
    """Mount `directory/disk` of that size; skip the test if it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounts a small tmpfs: run it as root")
    disk = directory / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(path: Path) -> None:
    """Use all free space, to the last page."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
