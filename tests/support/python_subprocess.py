"""Runs Python code in a separate process, as a worker is one."""

import subprocess
import sys


def run(program: str, *arguments: str) -> str:
    """Run a program; return its output, or fail the test with its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
