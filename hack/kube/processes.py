"""The components as processes: started with a log each, stopped, paused, killed; all end with us.

Used by `cluster` and `node`.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Died(Exception):
    """A component ended unexpectedly; the text has the end of its log."""


class Processes:
    """Named processes with their logs in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start a process in its own session; it gets SIGTERM when this process dies."""
        self.log(name).parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if environment is None else {**os.environ, **environment},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no lock
            )

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def names(self) -> list[str]:
        """Return the names of all that were started and not stopped, oldest first."""
        return list(self._running)

    def check(self) -> None:
        """Raise Died if a process has ended by itself."""
        for name, process in self._running.items():
            code = process.poll()
            if code is not None:
                text = self.log(name).read_text(errors="replace")[-2000:]
                raise Died(f"{name} ended with {code}:\n{text}")

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the process alone."""
        self._find(name).send_signal(number)

    def stop(self, name: str, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM, then SIGKILL, and wait for the end."""
        process = self._find(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        del self._running[name]

    def kill(self, name: str) -> None:
        process = self._find(name)
        process.kill()
        process.wait()
        del self._running[name]

    def _find(self, name: str) -> subprocess.Popen[bytes]:
        if name not in self._running:
            raise KeyError(f"{name} does not run; these do: {', '.join(self._running)}")
        return self._running[name]

    def stop_all(self) -> None:
        for name in reversed(self.names()):
            self.stop(name)

    def kill_all(self) -> None:
        for name in reversed(self.names()):
            self.kill(name)


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
