"""Driver programs that use `kiln.start()`, as subprocesses, and the processes that they leave.

Used where a driver is killed or its start is measured. Everything that it starts inherits `mark` in
its environment, so leftovers are found even when they are orphaned.
"""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from kilnwork.kit import ids, processes
from support import waiting


class Program:
    """A driver program in a file of its own, with all the processes that it starts."""

    def __init__(self, directory: Path, source: str, *, name: str = "program.py") -> None:
        self.path = directory / name
        self.path.write_text(textwrap.dedent(source))
        self.mark = f"KILN_TEST_MARK={ids.new_uid()}"
        self.process: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {**os.environ, name: value}

    def start(self, *arguments: str) -> None:
        """Start the program; its output goes to pipes."""
        self.process = subprocess.Popen(
            [sys.executable, str(self.path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.path.parent,
        )

    def line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, *arguments: str, timeout_s: float = 50.0) -> str:
        """Run the program until it exits with 0; return its output."""
        self.start(*arguments)
        return self.end(timeout_s=timeout_s)

    def end(self, *, timeout_s: float = 50.0) -> str:
        """Wait until the program exits with 0; return the rest of its output."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, out + err
        return out

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def alive(self, what: str = "") -> dict[int, str]:
        """Return its processes whose command line contains `what`, by pid."""
        found = {pid: _command(pid) for pid in processes.find_members(None, marker=self.mark)}
        return {pid: command for pid, command in found.items() if what in command}

    def wait_gone(self) -> None:
        """Wait until none of its processes is left."""
        waiting.wait_until(lambda: not self.alive(), what="all its processes have ended")

    def destroy(self) -> None:
        """Kill all of its processes."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        processes.kill_members(None, marker=self.mark)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
