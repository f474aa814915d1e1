"""The shim with real processes: exit codes, signals, output, escapees, and its own death."""

import asyncio
import contextlib
import functools
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kilnwork.controlplane.node import errors, shim, shim_container, shim_exec_server, shim_link
from kilnwork.kit import clock, ids, processes
from support import short_paths, waiting

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if {clean}:
            os.execve('/bin/sleep', ['sleep', '301'], {{}})
        time.sleep(301)
    os._exit(0)
os.wait()
open('started', 'w').close()
{then}
"""


class Bench:
    """A directory, a shim on it, and what it reported."""

    def __init__(self) -> None:
        self.base = short_paths.directory()
        self.uid = ids.new_uid()
        self.ended: dict[str, shim_container.ContainerRecord] = {}
        self.link: shim_link.ShimLink | None = None
        self.pids: list[int] = []

    async def open(self, *, patience_s: float = 30.0) -> list[shim_container.ContainerRecord]:
        opened = await shim_link.open_or_launch(
            self.base / "shim", self.base / "s", patience_s=patience_s
        )
        self.link = opened.link
        self.link.report_ends(self._on_ended)
        self.pids += [opened.pid] if opened.pid else []
        return opened.known

    def _on_ended(self, record: shim_container.ContainerRecord) -> None:
        self.ended[record.id] = record

    async def start(
        self, *argv: str, number: int = 0, **env: str
    ) -> shim_container.ContainerRecord:
        assert self.link is not None
        return await self.link.start(
            shim_container.StartRequest(
                id=f"{self.uid}/main/{number}",
                argv=list(argv),
                env={"PATH": os.environ["PATH"], **env},
                cwd=str(self.base),
                directory=str(self.base / "logs"),
            )
        )

    async def shell(self, script: str, *, number: int = 0) -> shim_container.ContainerRecord:
        return await self.start("sh", "-c", script, number=number)

    async def end(
        self, record: shim_container.ContainerRecord, *, timeout_s: float = 30.0
    ) -> shim_container.ContainerRecord:
        await waiting.wait_until_async(
            lambda: record.id in self.ended, what="the container ended", timeout_s=timeout_s
        )
        return self.ended[record.id]

    def lines(self, number: int = 0) -> list[str]:
        path = self.base / "logs" / f"{number}.log"
        text = path.read_text() if path.exists() else ""
        return [line.split(" ", 3)[3] for line in text.splitlines()]

    async def close(self) -> None:
        if self.link is not None and not self.link.closed.is_set():
            await self.link.leave(grace_s=0)
            await asyncio.wait_for(self.link.closed.wait(), 30)
        if self.link is not None:
            await self.link.close()
        for pid in self.pids:
            waiting.wait_until(functools.partial(shim_link.reap, pid), what="the shim has ended")
        for number in range(2):
            marker = f"{shim_container.MARKER}={self.uid}/main/{number}"
            assert processes.find_members(None, marker=marker) == set()
        shutil.rmtree(self.base)


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("code", [0, 1, 75, 255])
async def test_exit_code_is_reported(bench: Bench, code: int) -> None:
    record = await bench.end(await bench.shell(f"exit {code}"))
    assert (record.exit_code, record.signal, record.reason) == (code, 0, "")
    assert record.started_at <= record.finished_at


async def test_exit_code_after_signal_is_128_plus_its_number(bench: Bench) -> None:
    record = await bench.end(await bench.shell("kill -SEGV $$"))
    assert (record.exit_code, record.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)


async def test_only_the_given_environment_is_passed_on(bench: Bench) -> None:
    await bench.end(await bench.start("env", A="1"))
    assert sorted(line.split("=")[0] for line in bench.lines()) == [
        "A",
        "KILN_CONTAINER_ID",
        "PATH",
    ]


async def test_environment_and_arguments_stay_off_disk_and_command_line(bench: Bench) -> None:
    record = await bench.start("sleep", "300", TOKEN="hush-hush")
    for path in (bench.base / "shim").iterdir():
        assert b"hush-hush" not in path.read_bytes()
    assert b"hush-hush" not in Path(f"/proc/{bench.pids[0]}/cmdline").read_bytes()
    assert b"hush-hush" not in Path(f"/proc/{record.pid}/cmdline").read_bytes()


async def test_output_of_both_streams_is_complete(bench: Bench) -> None:
    script = "import sys\nfor n in range(20000): print(n, file=(sys.stdout, sys.stderr)[n % 2])"
    await bench.end(await bench.start(sys.executable, "-c", script))
    assert sorted(map(int, bench.lines())) == list(range(20000))


async def test_error_for_missing_program_names_program_and_path(bench: Bench) -> None:
    record = await bench.start("no-such-program")
    assert (record.exit_code, record.reason) == (shim_container.START_ERROR, "StartError")
    assert 'exec: "no-such-program": executable file not found in PATH "' in record.message
    assert os.environ["PATH"] in record.message


async def test_error_for_file_that_is_no_program(bench: Bench) -> None:
    (bench.base / "text").write_text("no program")
    record = await bench.start(str(bench.base / "text"))
    assert record.message == f'exec: "{bench.base}/text": permission denied'


async def test_error_for_missing_working_directory(bench: Bench) -> None:
    assert bench.link is not None
    order = shim_container.StartRequest(
        f"{bench.uid}/main/0", ["true"], {"PATH": "/bin"}, "/no/such", str(bench.base / "logs")
    )
    record = await bench.link.start(order)
    assert record.message == 'working directory "/no/such" is not a directory on this node'


async def test_the_same_container_is_not_started_twice(bench: Bench) -> None:
    first = await bench.shell("sleep 300")
    assert await bench.shell("sleep 300") == first


async def test_container_id_with_a_path_is_refused(bench: Bench) -> None:
    assert bench.link is not None
    order = shim_container.StartRequest(
        "../../x/main/0", ["true"], {}, "/", str(bench.base / "logs")
    )
    with pytest.raises(errors.ShimRefused, match="not a container id"):
        await bench.link.start(order)


async def test_sigterm_ends_container_within_grace_period(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("trap 'echo bye; exit 3' TERM; echo ready; sleep 300 & wait")
    await waiting.wait_until_async(bench.lines, what="it listens")
    await bench.link.stop(record.id, grace_s=30)
    assert (await bench.end(record)).exit_code == 3
    assert bench.lines() == ["ready", "bye"]


async def test_container_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    await waiting.wait_until_async(bench.lines, what="it listens")
    before = time.monotonic()
    await bench.link.stop(record.id, grace_s=0.3)
    ended = await bench.end(record)
    assert (ended.exit_code, ended.signal) == (137, signal.SIGKILL)
    assert time.monotonic() - before >= 0.3


async def test_grace_period_can_only_be_shortened(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    await waiting.wait_until_async(bench.lines, what="it listens")
    await bench.link.stop(record.id, grace_s=60)
    await bench.link.stop(record.id, grace_s=0)
    await bench.link.stop(record.id, grace_s=60)
    assert (await bench.end(record)).signal == signal.SIGKILL


@pytest.mark.parametrize("clean", [False, True], ids=["marked", "without environment"])
async def test_daemon_is_killed_before_the_end_is_reported(bench: Bench, *, clean: bool) -> None:
    script = DAEMON.format(clean=clean, then="")
    await bench.end(await bench.start(sys.executable, "-c", script))
    assert processes.children(bench.pids[0]) == []


@pytest.mark.parametrize("start", ["", "setsid", "env -i", "env -i nohup"])
async def test_background_processes_are_killed_while_others_run(bench: Bench, start: str) -> None:
    other = await bench.shell("sleep 300")
    await bench.end(await bench.shell(f"{start} sleep 301 & sleep 0.2", number=1))
    seen = processes.read_all().items()
    left = [pid for pid, stat in seen if stat.parent == bench.pids[0] and stat.running]
    assert left == [other.pid]


async def test_daemon_with_open_output_does_not_delay_the_end(bench: Bench) -> None:
    record = await bench.end(await bench.shell("setsid sleep 300 & echo started"))
    assert record.exit_code == 0
    assert bench.lines() == ["started"]
    assert processes.children(bench.pids[0]) == []


async def test_daemon_of_another_container_is_not_killed(bench: Bench) -> None:
    script = DAEMON.format(clean=True, then="time.sleep(300)")
    await bench.start(sys.executable, "-c", script)
    await waiting.wait_until_async((bench.base / "started").exists, what="the daemon runs")
    await bench.end(await bench.shell("exit 0", number=1))
    assert len(processes.children(bench.pids[0])) == 2


async def test_new_server_gets_running_and_ended_containers(bench: Bench) -> None:
    assert bench.link is not None
    running = await bench.shell("sleep 300")
    ending = await bench.shell("until [ -e go ]; do sleep 0.01; done; exit 7", number=1)
    await bench.link.close()
    (bench.base / "go").touch()
    await waiting.wait_until_async(
        lambda: any('"exit_code": 7' in p.read_text() for p in bench.base.rglob("*.json")),
        what="the other has ended",
    )
    known = {r.id: r for r in await bench.open()}
    assert len(bench.pids) == 1
    assert known[running.id] == running
    assert known[ending.id].exit_code == 7


async def test_forgotten_container_has_no_record(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("exit 0")
    await bench.end(record)
    await bench.link.forget(record.id)
    assert await bench.link.hello() == []
    assert list((bench.base / "shim").glob("*.json")) == []


async def test_running_container_cannot_be_forgotten(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("sleep 300")
    with pytest.raises(errors.ShimRefused):
        await bench.link.forget(record.id)


async def test_new_shim_adopts_containers_of_a_killed_one(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done; sleep 300")
    await waiting.wait_until_async(bench.lines, what="it writes")
    os.kill(bench.pids[0], signal.SIGKILL)
    await asyncio.wait_for(bench.link.closed.wait(), 30)
    await bench.link.close()
    known = await bench.open()
    assert [r.pid for r in known] == [record.pid]
    assert known[0].exit_code is None
    await waiting.wait_until_async(lambda: len(bench.lines()) == 8, what="no line is lost")
    assert bench.link is not None
    await bench.link.stop(record.id, grace_s=0)
    ended = await bench.end(record)
    assert (ended.exit_code, ended.reason) == (shim_container.UNKNOWN, shim_container.UNSEEN)


async def test_new_shim_reports_containers_that_ended_meanwhile(bench: Bench) -> None:
    assert bench.link is not None
    record = await bench.shell("sleep 300 & exec sleep 301")
    helper = await waiting.wait_until_async(
        lambda: processes.children(record.pid), what="its helper runs"
    )
    os.kill(bench.pids[0], signal.SIGKILL)
    os.kill(record.pid, signal.SIGKILL)
    await asyncio.wait_for(bench.link.closed.wait(), 30)
    await bench.link.close()
    await bench.open()
    identity = processes.identify(helper[0])
    await waiting.wait_until_async(
        lambda: identity is None or not identity.alive(), what="the helper is gone"
    )


async def test_shim_without_server_stops_containers_and_exits() -> None:
    bench = Bench()
    await bench.open(patience_s=1.0)
    assert bench.link is not None
    record = await bench.shell("trap '' TERM; while :; do sleep 0.05; done")
    await bench.link.close()
    await waiting.wait_until_async(lambda: shim_link.reap(bench.pids[0]), what="the shim has left")
    assert processes.identify(record.pid) is None
    await bench.open()
    assert bench.link is not None
    [known] = await bench.link.hello()
    assert (known.exit_code, known.signal) == (137, signal.SIGKILL)
    await bench.close()


async def test_full_disk_stops_neither_shim_nor_containers() -> None:
    bench = Bench()
    (bench.base / "shim").mkdir()
    (bench.base / "shim" / "shim.log").symlink_to("/dev/full")
    await bench.open()
    record = await bench.shell("until [ -e go ]; do sleep 0.05; done; exit 3")
    (bench.base / "shim" / f"{bench.uid}.main.0.new").mkdir()  # its record cannot be written
    (bench.base / "go").touch()
    assert (await bench.end(record)).exit_code == 3
    await bench.close()


def test_client_leaving_as_its_process_ends_is_dropped_once(tmp_path: Path) -> None:
    made = shim.Shim(tmp_path, tmp_path / "s", patience_s=1, now=clock.SystemClock())
    ours, theirs = socket.socketpair()
    guest = shim_exec_server.ExecConnection(ours)
    made._selector.register(ours, selectors.EVENT_READ, guest)
    theirs.close()
    [(key, _)] = made._selector.select(1)
    made._drop_connection(guest)  # as when its process is waited for in the same round
    made._read_first_request(key.data)
    assert not made._selector.get_map()


async def test_second_shim_on_the_directory_exits(bench: Bench) -> None:
    second = shim_link.launch(bench.base / "shim", bench.base / "other")
    _, status = os.waitpid(second, 0)
    assert os.waitstatus_to_exitcode(status) == shim.LOCKED


async def test_invalid_request_ends_only_its_connection(bench: Bench) -> None:
    assert bench.link is not None
    await bench.link.close()
    reader, writer = await asyncio.open_unix_connection(str(bench.base / "s"))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    await bench.open()
    assert len(bench.pids) == 1


async def test_the_socket_is_private(bench: Bench) -> None:
    assert (bench.base / "s").stat().st_mode & 0o077 == 0
    assert bench.base.stat().st_mode & 0o077 == 0


async def test_many_clients_can_connect_at_once(bench: Bench) -> None:
    """Each exec is a connection: those that are not heard yet wait in line."""
    with contextlib.ExitStack() as callers:
        os.kill(bench.pids[0], signal.SIGSTOP)
        try:
            for _ in range(200):
                caller = callers.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                caller.setblocking(False)
                caller.connect(str(bench.base / "s"))
        finally:
            os.kill(bench.pids[0], signal.SIGCONT)
    assert (await bench.end(await bench.shell("exit 7"))).exit_code == 7


async def test_silent_connection_does_not_replace_the_node(bench: Bench) -> None:
    strangers = [await asyncio.open_unix_connection(str(bench.base / "s")) for _ in range(2)]
    strangers[0][1].write(b"GET / HTTP/1.1\r\n\r\n")
    assert await strangers[0][0].read() == b""
    record = await bench.end(await bench.shell("exit 7"))
    assert record.exit_code == 7
    for _, writer in strangers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_hello_replaces_the_nodes_connection(bench: Bench) -> None:
    assert bench.link is not None
    first = bench.link
    record = await bench.shell("exec sleep 300")
    assert [known.id for known in await bench.open()] == [record.id]
    await asyncio.wait_for(first.closed.wait(), 30)
    await first.close()
