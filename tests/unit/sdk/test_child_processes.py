"""Processes of a home: what they inherit, and how their end is seen, even if not started by us."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import processes
from kilnwork.sdk import child_processes
from support import waiting

REPORT = """
import json, os, sys
def descriptor(n):
    try:
        return os.readlink(f"/proc/self/fd/{n}")
    except OSError:
        return ""
json.dump({
    "arguments": sys.argv[1:], "path": sys.path[:1], "session": os.getsid(0) == os.getpid(),
    "environment": dict(os.environ), "stdin": descriptor(0),
    "kept": [descriptor(int(n)) for n in sys.argv[1:]],
}, sys.stdout)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of modules that children can import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(60)\n")
    (tmp_path / "fails.py").write_text(
        "import sys\nsys.exit('first line\\nthe journal is in use by process 7')\n"
    )
    (tmp_path / "reports.py").write_text(REPORT)
    return tmp_path


def launch(directory: Path, module: str, *arguments: str, **more: object) -> child_processes.Launch:
    return child_processes.Launch(
        module=module,
        arguments=arguments,
        environment=dict(os.environ),
        log=directory / "child.log",
        **more,  # type: ignore[arg-type]
    )


def test_child_inherits_only_the_listed_descriptors(modules: Path) -> None:
    kept, kept_end = os.pipe()
    secret, secret_end = os.pipe()
    output = os.open(modules / "output", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        numbers = (str(kept), str(secret))
        child = child_processes.start(
            launch(modules, "reports", *numbers, keep=(kept,), output=output)
        )
        assert child.ended(20)
        kept_name = str(Path(f"/proc/self/fd/{kept}").readlink())
    finally:
        for number in (kept, kept_end, secret, secret_end, output):
            os.close(number)
    assert child.code == 0, child.last_words()
    said = json.loads((modules / "output").read_text())
    assert said["kept"] == [kept_name, ""]
    assert said["session"], "Ctrl-C must not reach it"
    assert said["stdin"] == "/dev/null"
    assert said["path"] != [""], "the current directory must not shadow modules"
    assert (modules / "child.log").stat().st_mode & 0o777 == 0o600


def test_the_end_of_a_child_is_seen_with_its_code_and_last_words(modules: Path) -> None:
    child = child_processes.start(launch(modules, "fails"))
    poll = select.poll()
    poll.register(child.fileno(), select.POLLIN)
    assert poll.poll(20_000)
    assert child.ended()
    assert child.code == 1
    assert child.last_words() == "the journal is in use by process 7"
    assert child.fileno() == -1


def test_a_killed_child_has_the_signal_as_its_code(modules: Path) -> None:
    child = child_processes.start(launch(modules, "sleeps"))
    assert not child.ended()
    child.kill(signal.SIGKILL)
    assert child.ended(20)
    assert child.code == -signal.SIGKILL
    child.kill(signal.SIGKILL)  # whatever has the pid now is not touched


def test_process_started_by_another_process_can_be_adopted(modules: Path) -> None:
    source = (
        "import subprocess, sys; nowhere = subprocess.DEVNULL;"
        "print(subprocess.Popen(sys.argv[1:], stdout=nowhere, stderr=nowhere).pid)"
    )
    argv = [sys.executable, "-c", source, sys.executable, "-m", "sleeps"]
    pid = int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    identity = processes.identify(pid)
    assert identity is not None
    child = child_processes.Child(identity, log=modules / "child.log")
    assert not child.ended()
    child.kill(signal.SIGKILL)
    assert child.ended(20)
    assert child.code is None
    waiting.wait_until(lambda: not identity.alive(), what="it is gone")


def test_a_reused_pid_is_not_adopted() -> None:
    own = processes.identify(os.getpid())
    assert own is not None
    other = child_processes.Child(processes.ProcessId(own.pid, own.started + 1), log=Path("/none"))
    assert other.ended()
    assert other.last_words() == ""
