"""Zygotes that do not start: killed at once, or without a needed module."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.channel import messages
from kilnwork.kit import errors, processes
from support import scripted_slots, waiting, worker_process

F = "support.slot_functions"

WITHOUT_ZYGOTE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "kilnwork.worker.zygote":
            raise ImportError("libfoo.so.1: cannot open shared object file")

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def broken_imports(tmp_path: Path) -> Path:
    """Return a directory for PYTHONPATH with which programs cannot import the zygote."""
    directory = tmp_path / "broken"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(WITHOUT_ZYGOTE)
    return directory


@pytest.fixture
async def starting(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> AsyncIterator[worker_process.WorkerProcess]:
    """Return a worker that has not been started."""
    made = worker_process.WorkerProcess(tmp_path, channel=hub.path)
    made.environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    yield made
    made.destroy()


def kill_first_child(worker: worker_process.WorkerProcess) -> int:
    pid = waiting.wait_until(
        lambda: processes.children(worker.pid), what="a child", every_s=0.0001
    )[0]
    os.kill(pid, signal.SIGKILL)
    return pid


async def test_zygote_killed_while_the_agent_starts_is_replaced(
    hub: scripted_slots.SlotHub, starting: worker_process.WorkerProcess
) -> None:
    starting.start()
    killed = kill_first_child(starting)
    await hub.first(messages.Hello)
    slot = await hub.open()
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2
    assert killed not in processes.children(starting.pid)


async def test_worker_whose_zygotes_do_not_start_exits_with_the_cause(
    hub: scripted_slots.SlotHub,
    starting: worker_process.WorkerProcess,
    broken_imports: Path,
) -> None:
    starting.environment["PYTHONPATH"] = str(broken_imports)
    starting.start()
    await hub.first(messages.Hello)
    reported = await hub.gone(hub.ask())
    assert "ended before it was ready, with exit code 1: " in reported.message
    assert "libfoo.so.1" in reported.message
    hub.ask()
    process = starting.process
    assert process is not None
    await waiting.wait_until_async(lambda: process.poll() is not None, what="it leaves")
    assert process.returncode == 4
    last = starting.log.read_text().splitlines()[-1]
    assert "worker leaves" in last
    assert "libfoo.so.1" in last
    assert "Traceback" in starting.log.read_text()
    assert not starting.alive()


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark what `kiln.start` starts here; nothing of it may be left."""
    monkeypatch.setenv("KILN_TEST_MARK", f"{os.getpid()}-{time.monotonic_ns()}")
    mark = f"KILN_TEST_MARK={os.environ['KILN_TEST_MARK']}"
    yield mark
    try:
        waiting.wait_until(lambda: not processes.find_marked(mark), what="nothing is left")
    finally:
        processes.kill_members(None, marker=mark)


@kiln.task
def double(number: int) -> int:
    return 2 * number


@pytest.mark.usefixtures("marked")
def test_futures_of_a_home_without_a_worker_name_the_cause(
    broken_imports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(broken_imports))
    with kiln.start(slots=1):
        future = double.submit(1)
        with pytest.raises(errors.KilnError, match=r"does not stay alive: .* libfoo\.so\.1"):
            future.result(timeout=120)


@pytest.mark.usefixtures("marked")
def test_home_goes_on_when_its_first_zygote_is_killed() -> None:
    with kiln.start(slots=1):
        worker = waiting.wait_until(
            lambda: [p for p in processes.children(os.getpid()) if _runs(p, "kilnwork.worker")],
            what="the worker",
            every_s=0.001,
        )[0]
        zygote = waiting.wait_until(
            lambda: processes.children(worker), what="its first child", every_s=0.0001
        )[0]
        os.kill(zygote, signal.SIGKILL)
        assert double.submit(21).result(timeout=60) == 42


def _runs(pid: int, module: str) -> bool:
    try:
        return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
