"""The start of a command in a session of its own, with one pipe for its standard output and error.

Used by `attempt`, and by `agent` when it starts. Calls posix_spawn(3) directly: every descriptor of
the worker is close-on-exec, so the command inherits none of them, and the call returns after the
exec has succeeded or failed.
"""

import errno
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import reasons
from kilnwork.worker import errors

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_NOT_A_COMMAND = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.ENOEXEC,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EPERM,
    }
)
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals to reset to their default action: Python ignores them, a command would inherit that, and
expects the default action.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was started.

    `output`: read end of its output pipe, non-blocking; the caller owns it.
    """

    pid: int
    output: int

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group.

        Call only before the process was waited for: its pid may be reused afterwards.
        """
        try:
            # The group rather than the process: a shell does not forward signals to the programs it
            # runs.
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


def start(argv: Sequence[str], environment: Mapping[str, str]) -> Command:
    """Start the command `argv` with its variables. Raises `CannotStart` or `CannotStartHere`."""
    if not argv:
        raise errors.CannotStart(
            reasons.Reason.COMMAND_MISSING,
            "spec.command is empty: on a worker an image gives no command, so the Task must",
        )
    program = _find(argv[0], environment.get("PATH", _DEFAULT_PATH))
    reading, writing = _pipe()
    try:
        pid = os.posix_spawn(
            program,
            list(argv),
            environment,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, writing, 2),
            ),
            # A session of its own, so that killpg reaches the command and no other process.
            setsid=True,
            # The signal mask is inherited over an exec; a command expects an empty one.
            setsigmask=(),
            setsigdef=_RESET_SIGNALS,
        )
    except BaseException as error:
        os.close(reading)
        # ValueError: a NUL byte in an argument or a variable.
        if isinstance(error, OSError | ValueError):
            raise _refusal(program, error) from error
        raise
    finally:
        # Only the command may hold the write end, or the pipe would never end.
        os.close(writing)
    return Command(pid=pid, output=reading)


def keep_descriptors_private() -> None:
    """Make every inherited descriptor above 2 close-on-exec, so that tasks do not inherit it."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2:
            try:
                os.set_inheritable(int(entry.name), False)
            # The listing contained its own descriptor, which is closed by now.
            except OSError:
                continue


def _pipe() -> tuple[int, int]:
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise errors.CannotStartHere(f"the worker cannot make a pipe: {error}") from error
    os.set_blocking(reading, False)
    return reading, writing


def _find(name: str, path: str) -> str:
    """Return the path of a program, found as a shell does.

    A name with a slash is a path; any other name is looked up in PATH.
    """
    if "/" in name:
        return name
    if not name or "\0" in name:
        raise errors.CannotStart(
            reasons.Reason.COMMAND_NOT_FOUND, f"{name!r} cannot be the name of a command"
        )
    denied = None
    # An empty entry of PATH means the working directory, as in execvp(3).
    for directory in path.split(os.pathsep):
        candidate = Path(directory or ".") / name
        if not _is_file(candidate):
            continue
        if os.access(candidate, os.X_OK):
            return str(candidate)
        denied = denied or candidate
    if denied is not None:
        raise errors.CannotStart(
            reasons.Reason.COMMAND_NOT_FOUND, f"{denied} is not executable: chmod +x {denied}"
        )
    raise errors.CannotStart(
        reasons.Reason.COMMAND_NOT_FOUND,
        f"no command {name!r} on the worker, which looked in PATH={path}. Install it there, name "
        "it by its absolute path, or set PATH in the `env` of the Task or the TaskCluster",
    )


def _is_file(candidate: Path) -> bool:
    try:
        return stat.S_ISREG(candidate.stat().st_mode)
    except OSError:
        return False


def _refusal(program: str, error: OSError | ValueError) -> errors.WorkerError:
    if isinstance(error, ValueError):
        return errors.CannotStart(
            reasons.Reason.INVALID_SPEC,
            f"command, args or env hold a character that no process can be given: {error}",
        )
    if error.errno == errno.E2BIG:
        return errors.CannotStart(
            reasons.Reason.INVALID_SPEC,
            "command, args and env are larger than the kernel allows (execve(2)): pass large "
            "values as an input",
        )
    if error.errno in _NOT_A_COMMAND:
        return errors.CannotStart(reasons.Reason.COMMAND_NOT_FOUND, _explained(program, error))
    return errors.CannotStartHere(f"the worker cannot start a process: {error.strerror}")


def _explained(program: str, error: OSError) -> str:
    why = error.strerror
    # ENOENT may also mean that the interpreter is missing (execve(2)).
    if error.errno == errno.ENOENT and _is_file(Path(program)):
        return (
            f"{program} cannot be executed: the interpreter that its first line or its ELF header "
            "names does not exist on the worker"
        )
    if error.errno == errno.ENOENT:
        return f"no command {program!r} on the worker (working directory {Path.cwd()})"
    if error.errno == errno.ENOEXEC:
        return f"{program} cannot be executed: {why}; a script must begin with #!INTERPRETER"
    if error.errno == errno.EACCES and _is_file(Path(program)):
        return f"{program} is not executable: chmod +x {program}"
    return f"{program} cannot be executed: {why}"
