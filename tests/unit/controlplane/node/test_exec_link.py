"""Exec with real processes: what they inherit, what they return, and when they end."""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kilnwork.controlplane.node import errors, exec_io, exec_link, shim_container, shim_link
from kilnwork.kit import ids, processes
from support import file_descriptors, short_paths, waiting


class Bench:
    """A shim with one container that sleeps."""

    def __init__(self) -> None:
        self.base = short_paths.directory()
        self.id = f"{ids.new_uid()}/main/0"
        self.ended: list[shim_container.ContainerRecord] = []
        self.link: shim_link.ShimLink
        self.pids: list[int] = []

    async def open(self) -> None:
        opened = await shim_link.open_or_launch(self.base / "shim", self.socket, patience_s=30)
        self.link = opened.link
        self.link.report_ends(self.ended.append)
        self.pids += [opened.pid] if opened.pid else []

    @property
    def socket(self) -> Path:
        return self.base / "s"

    async def container(self) -> None:
        env = {"PATH": os.environ["PATH"], "COLOUR": "blue green"}
        order = shim_container.StartRequest(
            self.id, ["sleep", "300"], env, str(self.base), str(self.base / "logs")
        )
        await self.link.start(order)

    async def run(self, *argv: str, timeout_s: float = 30.0) -> tuple[int, bytes]:
        return await exec_link.run(self.socket, self.id, argv, timeout_s=timeout_s)

    async def start(
        self, argv: Sequence[str], *, tty: bool = False
    ) -> tuple[exec_link.ExecProcess, exec_io.ProcessInput, exec_io.ProcessOutput]:
        """A process with standard output and error together."""
        if tty:
            output, input_, theirs = exec_io.terminal()
            given = [theirs, theirs, theirs]
        else:
            read, input_ = exec_io.pipe_to()
            output, write = exec_io.pipe_from()
            given = [read, write, write]
        command = exec_link.ExecCommand(self.id, argv, tty=tty)
        process = await exec_link.ExecProcess.start(self.socket, command, given)
        for descriptor in set(given):
            os.close(descriptor)
        return process, input_, output

    async def close(self) -> None:
        await self.link.leave(grace_s=0)
        await asyncio.wait_for(self.link.closed.wait(), 30)
        await self.link.close()
        for pid in self.pids:
            reaped = functools.partial(shim_link.reap, pid)
            await waiting.wait_until_async(reaped, what="the shim has ended")
        assert processes.find_members(None, marker=f"{shim_container.MARKER}={self.id}") == set()


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.open()
    await made.container()
    yield made
    await made.close()


async def read_all(output: exec_io.ProcessOutput) -> bytes:
    pieces = []
    while piece := await output.read():
        pieces.append(piece)
    output.close()
    return b"".join(pieces)


async def test_process_has_environment_and_directory_of_the_container(bench: Bench) -> None:
    code, output = await bench.run("sh", "-c", "echo $COLOUR; pwd; echo fault >&2; exit 3")
    assert code == 3
    assert output.decode().split("\n") == ["blue green", str(bench.base), "fault", ""]


async def test_exit_code_after_signal_is_128_plus_its_number(bench: Bench) -> None:
    assert await bench.run("sh", "-c", "kill -SEGV $$") == (128 + signal.SIGSEGV, b"")


async def test_exec_works_in_a_container_adopted_by_the_next_shim(bench: Bench) -> None:
    processes.signal_all([bench.pids[0]], signal.SIGKILL)
    await asyncio.wait_for(bench.link.closed.wait(), 30)
    await bench.link.close()
    await bench.open()
    code, output = await bench.run("sh", "-c", "echo $COLOUR; pwd")
    assert (code, output.decode().split("\n")[:2]) == (0, ["blue green", str(bench.base)])


async def test_missing_program_is_named(bench: Bench) -> None:
    with pytest.raises(
        exec_link.CommandNotStarted, match=r'exec: "nope": executable file not found in'
    ):
        await bench.run("nope")
    with pytest.raises(exec_link.CommandNotStarted, match="a command is needed"):
        await bench.run()


async def test_exec_in_stopped_container_is_refused(bench: Bench) -> None:
    with pytest.raises(exec_link.NotRunning):
        await exec_link.run(bench.socket, f"{ids.new_uid()}/main/0", ["true"], timeout_s=5)
    await bench.link.stop(bench.id, grace_s=0)
    await waiting.wait_until_async(lambda: bench.ended, what="the container ended")
    with pytest.raises(exec_link.NotRunning):
        await bench.run("true")


async def test_silent_shim_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exec_link, "RESPONSE_TIMEOUT_S", 0.05)
    path = Path("s")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        before = file_descriptors.open_descriptors()
        with pytest.raises(errors.ShimAway, match="does not respond"):
            await exec_link.run(path, "c", ["true"], timeout_s=5)
        with pytest.raises(errors.ShimAway, match="does not respond"):
            await exec_link.attach(path, "c", [1, 2])
        assert file_descriptors.open_descriptors() == before


async def test_missing_shim_raises_shim_away(bench: Bench) -> None:
    with pytest.raises(errors.ShimAway):
        await exec_link.run(bench.base / "missing", bench.id, ["true"], timeout_s=5)


async def test_process_that_exceeds_its_timeout_is_killed(bench: Bench) -> None:
    with pytest.raises(TimeoutError):
        await bench.run("sh", "-c", "trap '' HUP TERM; sleep 301; sleep 302", timeout_s=0.3)
    await waiting.wait_until_async(lambda: not running("301"), what="it is gone")


async def test_output_of_run_is_limited(bench: Bench) -> None:
    code, output = await bench.run(sys.executable, "-c", "print('x' * 1_000_000)")
    assert (code, len(output)) == (0, exec_link.OUTPUT)


async def test_input_and_output_pass_in_full(bench: Bench) -> None:
    process, input_, output = await bench.start(["cat"])
    content = os.urandom(1 << 20)
    reading = asyncio.create_task(read_all(output))
    assert await input_.write(content)
    input_.close()
    assert await reading == content
    assert await process.wait() == 0
    await process.close()


async def test_write_returns_false_when_the_process_stops_reading(bench: Bench) -> None:
    process, input_, output = await bench.start(["sh", "-c", "exec <&-; echo closed; sleep 300"])
    assert await output.read() == b"closed\n"
    assert not await input_.write(b"x" * (1 << 20))
    output.close()
    input_.close()
    await process.close()
    await waiting.wait_until_async(lambda: not is_alive(process), what="it was hung up on")


async def test_terminal_is_a_controlling_terminal(bench: Bench) -> None:
    script = "tty >/dev/null && read word && stty size && echo $word $TERM && test -t 2"
    process, input_, output = await bench.start(["sh", "-c", script], tty=True)
    input_.resize(width=77, height=33)
    assert await input_.write(b"hello\n")
    assert (await read_all(output)).split() == [b"hello", b"33", b"77", b"hello", b"xterm"]
    assert await process.wait() == 0
    input_.close()
    await process.close()


async def test_control_c_interrupts_what_runs_in_the_terminal(bench: Bench) -> None:
    script = "import signal; signal.signal(2, signal.SIG_DFL); print('on', flush=True)"
    argv = [sys.executable, "-c", f"{script}; signal.pause()"]
    process, input_, output = await bench.start(argv, tty=True)
    assert await output.read() == b"on\r\n"
    assert await input_.write(b"\x03")
    assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGINT
    output.close()
    input_.close()
    await process.close()


async def test_process_ends_with_its_container(bench: Bench) -> None:
    process, input_, output = await bench.start(["sh", "-c", "trap '' TERM HUP; echo on; read x"])
    assert await output.read() == b"on\n"
    await bench.link.stop(bench.id, grace_s=0)
    assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGKILL
    await waiting.wait_until_async(lambda: bench.ended, what="the container ended")
    output.close()
    input_.close()
    await process.close()


async def test_exit_code_is_unknown_when_the_shim_dies(bench: Bench) -> None:
    process, input_, output = await bench.start(["cat"])
    processes.signal_all([bench.pids[0]], signal.SIGKILL)
    with pytest.raises(errors.ShimAway):
        await asyncio.wait_for(process.wait(), 30)
    output.close()
    input_.close()
    await process.close()
    await asyncio.wait_for(bench.link.closed.wait(), 30)
    await bench.link.close()
    await bench.open()


class Attached:
    """A container with what a client of it hears."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.id = f"{ids.new_uid()}/main/0"

    async def start(self, script: str, **more: Any) -> None:
        """Run a shell script in a container of its own."""
        env = {"PATH": os.environ["PATH"]}
        base = self._bench.base
        order = shim_container.StartRequest(
            self.id, ["sh", "-c", script], env, str(base), str(base / "more"), **more
        )
        await self._bench.link.start(order)

    async def join(
        self,
    ) -> tuple[exec_link.Attachment, exec_io.ProcessOutput, exec_io.ProcessOutput]:
        """Attach; the attachment and both outputs."""
        out, out_end = exec_io.pipe_from()
        err, err_end = exec_io.pipe_from()
        try:
            attached = await exec_link.attach(self._bench.socket, self.id, [out_end, err_end])
        finally:
            os.close(out_end)
            os.close(err_end)
        return attached, out, err

    def log(self) -> list[str]:
        text = (self._bench.base / "more" / "0.log").read_text()
        return [line.split(" ", 3)[3] for line in text.splitlines()]


@pytest_asyncio.fixture
async def attached_container(bench: Bench) -> AsyncIterator[Attached]:
    made = Attached(bench)
    yield made
    await bench.link.stop(made.id, grace_s=0)


async def test_all_attached_clients_get_output_to_the_end(attached_container: Attached) -> None:
    await attached_container.start(
        "read go; printf pro; printf mpt; echo; echo err >&2", stdin=True
    )
    joined = [await attached_container.join() for _ in range(2)]
    assert all(attached.input is not None for attached, _, _ in joined)
    assert joined[1][0].input is not None
    assert await joined[1][0].input.write(b"go\n")
    for attached, out, err in joined:
        assert await read_all(out) == b"prompt\n"
        assert await read_all(err) == b"err\n"
        assert not await attached.was_slow()
        attached.close()
    assert sorted(attached_container.log()) == ["err", "prompt"]


async def test_first_attached_client_closes_stdin_once_input(attached_container: Attached) -> None:
    await attached_container.start("cat; echo end", stdin=True, stdin_once=True)
    attached, out, err = await attached_container.join()
    second, *outputs = await attached_container.join()
    assert second.input is None
    assert attached.input is not None
    assert await attached.input.write(b"all\n")
    attached.input.close()
    assert await read_all(out) == b"all\nend\n"
    for output in (err, *outputs):
        output.close()
    for joined in (attached, second):
        joined.close()


async def test_attachment_has_no_input_without_stdin(attached_container: Attached) -> None:
    await attached_container.start("cat; read go </dev/null; sleep 300")
    attached, out, err = await attached_container.join()
    assert attached.input is None
    attached.close()
    out.close()
    err.close()


async def test_attachment_uses_the_terminal(attached_container: Attached) -> None:
    await attached_container.start(
        "read go; stty size; echo $TERM; test -t 2 && echo on", stdin=True, tty=True
    )
    attached, out, err = await attached_container.join()
    assert attached.input is not None
    attached.input.resize(width=99, height=44)
    assert await attached.input.write(b"go\n")
    assert (await read_all(out)).split() == [b"go", b"44", b"99", b"xterm", b"on"]
    assert await read_all(err) == b""
    attached.close()


async def test_slow_reader_is_disconnected(bench: Bench, attached_container: Attached) -> None:
    await attached_container.start(
        "read go; yes | head -c 5000000; echo; exec sleep 300", stdin=True
    )
    attached, out, err = await attached_container.join()
    assert attached.input is not None
    assert await attached.input.write(b"go\n")
    assert await asyncio.wait_for(attached.was_slow(), 30)
    assert 0 < len(await read_all(out)) < 5_000_000
    err.close()
    attached.close()
    quick, *outputs = await attached_container.join()
    quick.close()
    for output in outputs:
        output.close()
    assert (await bench.run("true"))[0] == 0


async def test_disconnected_client_is_detached(attached_container: Attached) -> None:
    await attached_container.start("read go; echo one; read go; echo two", stdin=True)
    first, out, err = await attached_container.join()
    assert first.input is not None
    out.close()
    err.close()
    await first.input.write(b"go\n")
    first.close()
    second, out, err = await attached_container.join()
    assert second.input is not None
    await second.input.write(b"go\n")
    assert (await read_all(out)).endswith(b"two\n")
    err.close()
    second.close()


async def test_stopped_container_cannot_be_attached(
    bench: Bench, attached_container: Attached
) -> None:
    with pytest.raises(exec_link.NotRunning):
        await attached_container.join()
    await attached_container.start("true")
    await waiting.wait_until_async(lambda: bench.ended, what="it has ended")
    with pytest.raises(exec_link.NotRunning):
        await attached_container.join()


async def test_malformed_requests_do_not_stop_the_shim(bench: Bench) -> None:
    for line in (b'{"n": 1, "do": "exec"}', b'{"n": 1, "do": "exec", "container": {}}', b"[]"):
        reader, writer = await asyncio.open_unix_connection(str(bench.socket))
        writer.write(line + b"\n")
        await asyncio.wait_for(reader.read(), 30)
        await wait_closed(writer)
    reader, writer = await asyncio.open_unix_connection(str(bench.socket))
    request = f'{{"n": 1, "do": "exec", "container": "{bench.id}", "argv": ["true"]}}'
    writer.write(request.encode() + b"\n")
    assert b"needs 3 descriptors" in await reader.read()
    await wait_closed(writer)
    assert (await bench.run("true"))[0] == 0


async def wait_closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def running(argument: str) -> list[int]:
    """Processes with this very argument."""
    needle = b"\0" + argument.encode() + b"\0"
    found = []
    for pid in processes.all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if needle in command:
            found.append(pid)
    return found


def is_alive(process: exec_link.ExecProcess) -> bool:
    identity = processes.identify(process.pid)
    return identity is not None and identity.alive()
