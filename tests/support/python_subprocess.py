"""Runs Python in a process of its own, as a worker would be one."""

import subprocess
import sys


def run(program: str, *arguments: str) -> str:
    """What it prints; fails the test with what it says on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
