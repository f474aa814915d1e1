"""Starting commands: where they are found, and what is said when they are not."""

import os
import signal
from pathlib import Path

import pytest

from kilnwork.worker import command_start, errors

PATH = {"PATH": "/usr/bin:/bin"}


def output_of(argv: list[str], environment: dict[str, str]) -> tuple[int, bytes]:
    command = command_start.start(argv, environment)
    code = os.waitstatus_to_exitcode(os.waitpid(command.pid, 0)[1])
    os.set_blocking(command.output, True)
    with os.fdopen(command.output, "rb") as file:
        return code, file.read()


def refusal(argv: list[str], environment: dict[str, str]) -> errors.CannotStart:
    with pytest.raises(errors.CannotStart) as refused:
        command_start.start(argv, environment)
    return refused.value


def script(path: Path, text: str, *, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_command_has_its_own_session_and_only_the_given_environment() -> None:
    command = "ps -o sid= -p $$; echo $$; echo $A; read line || echo no input"
    code, text = output_of(["sh", "-c", command], {**PATH, "A": "b"})
    session, pid, value, end = text.decode().split(maxsplit=3)
    assert (code, session, value, end) == (0, pid, "b", "no input\n")


def test_signals_that_python_ignores_are_reset_to_default() -> None:
    code, text = output_of(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"], PATH)
    assert code == 0
    masks = [int(line.split()[1], 16) for line in text.decode().splitlines()]
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]  # 32 and 33 belong to the C library


def test_program_is_found_in_the_path_of_the_task(tmp_path: Path) -> None:
    script(tmp_path / "tool", "#!/bin/sh\necho mine\n")
    assert output_of(["tool"], {"PATH": str(tmp_path)}) == (0, b"mine\n")


def test_file_that_is_not_executable_is_skipped_or_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    script(tmp_path / "first" / "tool", "", mode=0o644)
    path = {"PATH": f"{tmp_path}/first:{tmp_path}/second"}
    assert "chmod +x" in str(refusal(["tool"], path))
    script(tmp_path / "second" / "tool", "#!/bin/sh\necho second\n")
    assert output_of(["tool"], path) == (0, b"second\n")


@pytest.mark.parametrize(
    ("argv", "reason", "message"),
    [
        ([], "CommandMissing", "spec.command is empty"),
        ([""], "CommandNotFound", "cannot be the name"),
        (["a\0b"], "CommandNotFound", "cannot be the name"),
        (["no-such"], "CommandNotFound", "looked in PATH=/usr/bin:/bin"),
        (["/no/such"], "CommandNotFound", "no command '/no/such'"),
        (["/etc"], "CommandNotFound", "cannot be executed"),
        (["/etc/passwd"], "CommandNotFound", "chmod +x /etc/passwd"),
        (["/etc/passwd/x"], "CommandNotFound", "Not a directory"),
        (["true", "a\0b"], "InvalidSpec", "no process can be given"),
        (["true", "x" * 200_000], "InvalidSpec", "larger than the kernel allows"),
    ],
)
def test_command_that_cannot_be_started_is_refused(
    argv: list[str], reason: str, message: str
) -> None:
    refused = refusal(argv, PATH)
    assert refused.reason == reason
    assert message in str(refused)


def test_missing_interpreter_is_named(tmp_path: Path) -> None:
    path = script(tmp_path / "tool", "#!/no/such/interpreter\n")
    assert "interpreter" in str(refusal([str(path)], PATH))


def test_script_without_interpreter_line_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path / "tool", "echo hello\n")
    assert "#!INTERPRETER" in str(refusal([str(path)], PATH))


def test_variable_with_a_null_byte_is_refused() -> None:
    assert refusal(["true"], {**PATH, "A": "b\0c"}).reason == "InvalidSpec"


def test_refused_command_leaks_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    refusal(["/no/such"], PATH)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_signal_reaches_the_group_and_ignores_exited_processes() -> None:
    command = command_start.start(["sh", "-c", "sleep 60 & wait"], PATH)
    command.signal(signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(command.pid, 0)[1]) == -signal.SIGKILL
    command.signal(signal.SIGKILL)
    os.close(command.output)
