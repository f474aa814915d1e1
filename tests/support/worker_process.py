"""`python -m kilnwork.worker` in a subprocess, started as by a TaskCluster's Pod."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from kilnwork.kit import ids, processes
from kilnwork.worker import zygote_link


class WorkerProcess:
    """One worker; all its processes can be found by a mark in the environment."""

    def __init__(self, directory: Path, *, channel: Path, **environment: str) -> None:
        self.directory = directory
        self.mark = f"KILN_CONTAINER_ID={ids.new_uid()}"
        self.log = directory / "worker.log"
        self.out = directory / "worker.out"
        token = directory / "token"
        token.write_text("opensesame\n")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "TMPDIR": "/tmp",
            "KILN_CHANNEL": f"unix:{channel}",
            "KILN_TOKEN_FILE": str(token),
            "KILN_NAMESPACE": "default",
            "KILN_CLUSTER": "counter",
            "KILN_WORKER": "counter-0",
            "KILN_POD_UID": ids.new_uid(),
            "KILN_NODE": "node-0",
            "KILN_SLOTS": "2",
            "KILN_CONTAINER_ID": self.mark.partition("=")[2],
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        *,
        keep: tuple[int, ...] = (),
        output: int | None = None,
        inside: Path | None = None,
    ) -> None:
        """Start the worker without waiting.

        `keep`: descriptors that it inherits; `output`: its own output; `inside`: directory of the
        cgroup to start in.
        """
        command = [sys.executable, "-m", "kilnwork.worker"]
        if inside is not None:
            enter = f'echo $$ > "{inside}/cgroup.procs"; exec "$@"'
            command = ["/bin/sh", "-c", enter, "sh", *command]
        with self.log.open("ab") as log, self.out.open("ab") as out:
            os.set_inheritable(log.fileno(), True)
            self.process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out if output is None else output,
                stderr=log,
                cwd=self.directory,
                pass_fds=(log.fileno(), *keep),  # a careless parent: tasks must not see it
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self, *, timeout_s: float = 30.0) -> int:
        """Send SIGTERM; return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def destroy(self) -> None:
        """Kill all processes."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        processes.kill_members(None, marker=self.mark)

    def alive(self) -> set[int]:
        """Return the running processes of the worker, without its zygote."""
        found = processes.find_members(None, marker=self.mark)
        return found - self.zygotes() if self.pid in found else found

    def descendants(self) -> set[int]:
        """Return its descendants, including zombies, without its zygote."""
        return processes.descendants(self.pid) - self.zygotes()

    def zygotes(self) -> set[int]:
        """Return the processes that slots are forked from; one, except for a moment after one
        died.
        """
        children = processes.children(self.pid)
        return {pid for pid in children if comm(pid) == zygote_link.ZYGOTE}

    def described(self) -> str:
        """Return its processes, their states, where in the kernel they sleep, and its log."""
        pids = sorted(processes.find_members(None, marker=self.mark))
        lines = [f"{pid} {comm(pid)}: {_state(pid)} {_of(pid, 'wchan')}" for pid in pids]
        return "\n".join((*lines, self.log.read_text(errors="replace")[-5000:]))


def comm(pid: int) -> str:
    """Return the process name as `ps` shows it."""
    return _of(pid, "comm").rstrip("\n")


def _state(pid: int) -> str:
    """Return the state as in proc_pid_status(5), such as `S (sleeping)`."""
    lines = _of(pid, "status").splitlines()
    return next((line.split(None, 1)[1] for line in lines if line.startswith("State:")), "gone")


def _of(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
