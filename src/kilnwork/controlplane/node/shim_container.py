"""One container in the shim: start, stop, the check that no process of it is left, and its record.

A container is one program in a session of its own, plus all processes that this program starts. It
has ended when no process of it is left. The record on disk lets a later shim adopt the container by
pid and start time; it holds no environment and no command, since these may contain secrets. Input
and output are in `stdio`. Standard library only.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kilnwork.controlplane.node import log_writer, privileges, stdio
from kilnwork.kit import clock, processes

MARKER = "KILN_CONTAINER_ID"
"""Environment variable of all processes of a container; its value is the container's id."""

_ID = re.compile(r"[a-z0-9-]{1,64}/[a-z0-9-]{1,63}/[0-9]{1,9}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_DRAIN_S = 1.0
_AGAIN_S = 0.01
_AGAIN_MAX_S = 1.0
_ADOPTED_LOOK_S = 0.1
_READ = 64 * 1024

TERM = "xterm"
"""Default of TERM for a container with a terminal, as in containerd."""

START_ERROR = 128
"""Exit code of a container whose program could not be executed (containerd's StartError)."""

UNKNOWN = 137
"""Exit code of a container whose end was not seen (the kubelet's ContainerStatusUnknown)."""


UNSEEN = "ContainerStatusUnknown"


class ContainerRecord(NamedTuple):
    """State of a container, which is also the JSON object on the wire and in the record file."""

    id: str
    directory: str
    pid: int = 0
    """0 until the program runs."""
    started: int = 0
    """`processes.ProcessId.started` of process `pid`, valid in boot `boot`."""
    boot: str = ""
    started_at: float = 0.0
    """Wall clock, seconds."""
    finished_at: float = 0.0
    """Wall clock, seconds."""
    exit_code: int | None = None
    """None until no process of the container is left."""
    signal: int = 0
    reason: str = ""
    message: str = ""

    @property
    def number(self) -> int:
        """Return the number of this start: 0 for the first, 1 for the first restart in the Pod."""
        return int(self.id.rsplit("/", 1)[1])


class StartRequest(NamedTuple):
    """Request to start a container."""

    id: str
    argv: list[str]
    env: dict[str, str]
    """The complete environment: nothing is inherited."""
    cwd: str
    directory: str
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    no_new_privileges: bool = False
    dropped: tuple[int, ...] = ()
    """Numbers of dropped capabilities."""


def valid_id(text: str) -> bool:
    """Return whether the text has the form `<pod uid>/<container name>/<number>`."""
    return _ID.fullmatch(text) is not None


class RecordDirectory:
    """Directory of container records: one JSON file per container, until `forget` removes it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, record: ContainerRecord) -> None:
        """Write the record of a container, replacing an earlier one. Raises OSError."""
        path = self._path(record.id)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(record._asdict()))
        # The replacement is atomic: a shim killed here leaves the old record or the new one.
        temporary.replace(path)

    def forget(self, container: str) -> None:
        self._path(container).unlink(missing_ok=True)

    def load(self) -> list[ContainerRecord]:
        """Return all records. Remove unreadable files, which were never complete."""
        records = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                records.append(ContainerRecord(**json.loads(path.read_text())))
            except (OSError, ValueError, TypeError):
                path.unlink(missing_ok=True)
        return records

    def _path(self, container: str) -> Path:
        return self._directory / f"{container.replace('/', '.')}.json"


def root(record: ContainerRecord) -> Path:
    """Return the directory with the mounts of the container: `DIRECTORY/root`."""
    return Path(record.directory) / "root"


def log_path(record: ContainerRecord) -> Path:
    """Return the path of the container's log: `DIRECTORY/NUMBER.log`."""
    return Path(record.directory) / f"{record.number}.log"


def as_lost(record: ContainerRecord, now: float) -> ContainerRecord:
    """Return the record of a container that no shim knows: ended, with an unknown exit code."""
    return record._replace(
        exit_code=UNKNOWN,
        finished_at=now,
        reason=UNSEEN,
        message="the record of the container was lost",
    )


def boot_id() -> str:
    """Return the id of this boot of the machine. Start times are comparable only within a boot."""
    return _BOOT.read_text().strip()


class ShimContainer:
    """A container in the shim, from its start until all its processes have ended.

    The shim calls `exited` after it has waited for the root process, and `step` whenever the time
    `due()` has come, until `record.exit_code` is set.
    """

    def __init__(self, record: ContainerRecord, *, now: clock.Clock, adopted: bool = False) -> None:
        self.record = record
        self._now = now
        self._adopted = adopted
        self._root: processes.ProcessId | None = None
        self._boot = boot_id()
        self._status: int | None = None
        self._kill_at: float | None = None
        self._drain_until: float | None = None
        self._again_at: float | None = None
        self._again_s = _AGAIN_S
        self._process_context: tuple[dict[str, str], str] | None = None
        self._log = log_writer.LogWriter(log_path(record), now=now)
        self._stdio = stdio.Stdio(Path(record.directory), record.number)
        self.pipes = self._stdio.pipes
        """Read ends of the output → name of the stream; the shim closes them."""
        self.listeners: list[Callable[[str, bytes], None]] = []
        """Functions that are called with each piece of output: (stream, piece)."""

    @property
    def marker(self) -> str:
        """Return the environment entry that all processes of the container have."""
        return f"{MARKER}={self.record.id}"

    @property
    def ended(self) -> bool:
        """Return whether no process of the container is left and its exit code is known."""
        return self.record.exit_code is not None

    @property
    def root(self) -> processes.ProcessId | None:
        """Return the first process of the container, or None if it has ended or did not start."""
        return self._root

    def start(self, order: StartRequest) -> None:
        """Execute the program. A failure ends the container with `START_ERROR` and a message."""
        try:
            pid = self._execute(order)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            text = explain_failure(order.argv, order.env, order.cwd, error=error)
            self._end(START_ERROR, reason="StartError", message=text)
            return
        self._process_context = (order.env, order.cwd)
        # The child is not reaped yet, so it is found even if it has ended already.
        self._root = processes.identify(pid)
        self.record = self.record._replace(
            pid=pid,
            started=self._root.started if self._root else 0,
            boot=self._boot,
            started_at=self._now.wall(),
        )

    def _execute(self, order: StartRequest) -> int:
        Path(order.directory).mkdir(mode=0o700, parents=True, exist_ok=True)
        ends = self._stdio.open(stdin=order.stdin, once=order.stdin_once, tty=order.tty)
        env = {"TERM": TERM, **order.env} if order.tty else order.env
        try:
            child = subprocess.Popen(
                order.argv,
                stdin=ends[0],
                stdout=ends[1],
                stderr=ends[2],
                cwd=order.cwd,
                # The marker comes last, so that a Pod cannot replace it.
                env={**env, MARKER: order.id},
                start_new_session=True,
                preexec_fn=before_exec(  # noqa: PLW1509 - one thread
                    privileges.Privileges(order.no_new_privileges, tuple(order.dropped)),
                    tty=order.tty,
                ),
                # The shim's own umask is 077.
                umask=0o022,
            )
        finally:
            stdio.close(ends)
        child.returncode = 0  # the shim waits for all its children: Popen must not
        return child.pid

    def process_context(self) -> tuple[dict[str, str], str]:
        """Return environment and working directory for further processes in the container.

        For an adopted container both are read from its first process (proc(5)). Raises OSError if
        that process has ended.
        """
        if self._process_context is not None:
            return dict(self._process_context[0]), self._process_context[1]
        process = Path(f"/proc/{self.record.pid}")
        pairs = os.fsdecode((process / "environ").read_bytes()).split("\0")
        env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return env, str((process / "cwd").readlink())

    def dropped_privileges(self) -> privileges.Privileges:
        """Return the privileges that further processes must drop.

        Raises OSError if the first process has ended.
        """
        return privileges.of_process(self.record.pid)

    def adopt(self) -> None:
        """Take over a container of an earlier shim. Its end will be seen, but not its exit code."""
        root = processes.ProcessId(self.record.pid, self.record.started)
        # Identified by pid and start time, since the pid may belong to another process by now.
        if self.record.boot == self._boot and root.alive():
            self._root = root
            # The process is no child of this shim, so no SIGCHLD reports its end: it is polled.
            self._again_at = self._now.monotonic() + _ADOPTED_LOOK_S
        else:
            self._on_root_gone()
        self._stdio.adopt()

    def lend_input(self) -> int | None:
        """Return a copy of our end of the input, or None: see `stdio.Stdio.lend_input`."""
        return self._stdio.lend_input()

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the process group, and SIGKILL to all processes after `grace_s`.

        A second call can only shorten the grace period. Does nothing once the root process has
        ended: what is left of the container is killed then in any case.
        """
        if self._root is None:
            return
        at = self._now.monotonic() + max(0.0, grace_s)
        first = self._kill_at is None
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)
        if first and grace_s > 0 and self._root.alive():
            with contextlib.suppress(ProcessLookupError):
                # The root process has started a session, so its process group has its pid.
                os.killpg(self._root.pid, signal.SIGTERM)

    def exited(self, status: int) -> None:
        """Record that the root process has exited with this status (waitpid(2))."""
        self._status = status
        self._on_root_gone()

    def read(self, pipe: int) -> bool:
        """Move a piece of output from a pipe to the log and the listeners.

        Return False at the end of the output.
        """
        try:
            output = os.read(pipe, _READ)
        except BlockingIOError:
            return True
        except OSError:  # EIO: no process has the terminal open
            return False
        for listener in list(self.listeners) if output else ():
            listener(self.pipes[pipe], output)
        self._log.write(self.pipes[pipe], output)
        return bool(output)

    def due(self) -> float | None:
        """Return the time to call `step` (monotonic; 0: at once), or None if nothing is due."""
        if self._drain_until is not None and not self.pipes:
            return 0.0
        times = [t for t in (self._kill_at, self._again_at, self._drain_until) if t is not None]
        return min(times, default=None)

    def step(self, *, alone: bool, clear: bool) -> None:
        """Do what is due: send SIGKILL, look for processes that are left, or end the container.

        `alone`: the shim has no child left, so no process can have escaped. `clear`: no process
        with the container's marker is left, according to `processes.unused_markers`.
        """
        now = self._now.monotonic()
        if self._root is not None:
            self._step_running(now)
        elif self._drain_until is None:
            # `alone` does not apply to an adopted container, which is not below this shim.
            if clear or (alone and not self._adopted) or self._kill(None):
                # The pipes may hold more. The wait is limited: another process may keep them open.
                self._drain_until = now if not self.pipes else now + _DRAIN_S
                self._again_at = None
            else:
                self._again_at = now + self._patience_s()
        if self._drain_until is not None and (not self.pipes or now >= self._drain_until):
            self._finish()

    def _step_running(self, now: float) -> None:
        assert self._root is not None  # noqa: S101 - for the type checker
        if self._adopted and not self._root.alive():
            self._on_root_gone()
            return
        self._again_at = now + _ADOPTED_LOOK_S if self._adopted else None
        if self._kill_at is not None and now >= self._kill_at:
            self._kill(self._root.pid)
            self._kill_at = now + self._patience_s()

    def _kill(self, root: int | None) -> bool:
        """Kill the processes of the container. Return whether no process is left.

        See `processes.kill_members`.
        """
        same_boot = self.record.boot == self._boot  # a pid is valid only in its boot
        return processes.kill_members(
            root,
            marker=self.marker,
            rounds=4,
            # Only processes that started later can belong to the container.
            since=self.record.started if same_boot else 0,
            # The id of a session is not reused as long as the session has members.
            session=self.record.pid if same_boot and root is None else None,
        )

    def _patience_s(self) -> float:
        """Return the time to wait until killed processes have exited.

        It doubles with each call, since some processes sleep uninterruptibly.
        """
        self._again_s = min(_AGAIN_MAX_S, self._again_s * 2)
        return self._again_s

    def _on_root_gone(self) -> None:
        self._root = None
        self._kill_at = None
        self._again_at = self._now.monotonic()

    def _finish(self) -> None:
        if self._status is None:
            message = "the container ended while nothing watched it"
            self._end(UNKNOWN, reason=UNSEEN, message=message)
            return
        code = os.waitstatus_to_exitcode(self._status)
        number = -code if code < 0 else 0
        self._end(128 + number if number else code, number=number)

    def _end(self, code: int, *, number: int = 0, reason: str = "", message: str = "") -> None:
        self._stdio.close()
        self._log.close()
        self._kill_at = self._again_at = self._drain_until = self._process_context = None
        self.record = self.record._replace(
            exit_code=code,
            signal=number,
            reason=reason,
            message=message,
            finished_at=self._now.wall(),
        )


def before_exec(
    dropped_privileges: privileges.Privileges, *, tty: bool = False
) -> Callable[[], None] | None:
    """Return the function that a child calls before it executes its program.

    Returns None if there is nothing to do. The function drops the privileges. With `tty`, it also
    makes standard input the controlling terminal of the new session (ioctl_tty(2)). The function is
    safe as a preexec_fn because the shim has only one thread.
    """
    if not tty and dropped_privileges == privileges.Privileges():
        return None

    def prepare() -> None:
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        privileges.apply(dropped_privileges)

    return prepare


def explain_failure(argv: list[str], env: Mapping[str, str], cwd: str, *, error: Exception) -> str:
    """Return why a program could not be executed, with the file and where it was searched for."""
    program = argv[0] if argv else ""
    if not isinstance(error, OSError):
        return f'exec: "{program}": {error}'
    # subprocess names the directory when chdir has failed.
    if error.filename == cwd and not os.path.isdir(cwd):  # noqa: PTH112 - a str
        return f'working directory "{cwd}" is not a directory on this node'
    if error.errno == errno.ENOENT and "/" not in program:
        return f'exec: "{program}": executable file not found in PATH "{env.get("PATH", "")}"'
    text = f'exec: "{program}": {os.strerror(error.errno or 0).lower()}'
    return text if error.filename in (None, program) else f"{text}: {error.filename}"
