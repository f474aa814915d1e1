"""Memory that is free goes back to the system."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from kilnwork.kit import memory_release

def resident_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024

held = [bytes(20_000) + bytes([i % 256]) for i in range(5000)]
held = held[::50]
before = resident_mib()
memory_release.release_free()
print(before - resident_mib())
"""


@pytest.mark.skipif(
    not hasattr(os, "confstr") or "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""),
    reason="only glibc's malloc keeps it",
)
def test_free_memory_between_used_blocks_is_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert float(done.stdout) > 50
