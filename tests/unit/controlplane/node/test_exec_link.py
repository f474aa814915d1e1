"""Exec with real processes: what they inherit, what they return, and when they end."""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from kilnwork.controlplane.node import container, errors, exec_io, exec_link, shim_link
from kilnwork.kit import ids, processes
from support import short, waiting


class Bench:
    """A shim with one container that sleeps."""

    def __init__(self) -> None:
        self.base = short.folder()
        self.id = f"{ids.new_uid()}/main/0"
        self.ended: list[container.Record] = []
        self.link: shim_link.Link
        self.pids: list[int] = []

    async def open(self) -> None:
        opened = await shim_link.open_or_launch(
            self.base / "shim", self.socket, patience_s=30, on_ended=self.ended.append
        )
        self.link = opened.link
        self.pids += [opened.pid] if opened.pid else []

    @property
    def socket(self) -> Path:
        return self.base / "s"

    async def container(self) -> None:
        env = {"PATH": os.environ["PATH"], "COLOUR": "blue green"}
        order = container.Order(
            self.id, ["sleep", "300"], env, str(self.base), str(self.base / "logs")
        )
        await self.link.start(order)

    async def run(self, *argv: str, timeout_s: float = 10) -> tuple[int, bytes]:
        return await exec_link.run(self.socket, self.id, argv, timeout_s=timeout_s)

    async def start(
        self, argv: Sequence[str], *, tty: bool = False
    ) -> tuple[exec_link.Process, exec_io.Input, exec_io.Output]:
        """A process with standard output and error together."""
        if tty:
            output, input_, theirs = exec_io.terminal()
            given = [theirs, theirs, theirs]
        else:
            read, input_ = exec_io.pipe_to()
            output, write = exec_io.pipe_from()
            given = [read, write, write]
        command = exec_link.Command(self.id, argv, tty=tty)
        process = await exec_link.Process.start(self.socket, command, given)
        for descriptor in set(given):
            os.close(descriptor)
        return process, input_, output

    async def close(self) -> None:
        await self.link.leave(grace_s=0)
        await asyncio.wait_for(self.link.closed.wait(), 10)
        await self.link.close()
        for pid in self.pids:
            reaped = functools.partial(shim_link.reap, pid)
            await waiting.wait_until_async(reaped, what="the shim has ended")
        assert processes.belonging(None, marker=f"{container.MARKER}={self.id}") == set()


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.open()
    await made.container()
    yield made
    await made.close()


async def all_of(output: exec_io.Output) -> bytes:
    pieces = []
    while piece := await output.read():
        pieces.append(piece)
    output.close()
    return b"".join(pieces)


async def test_it_has_the_environment_and_folder_of_the_container(bench: Bench) -> None:
    code, output = await bench.run("sh", "-c", "echo $COLOUR; pwd; echo fault >&2; exit 3")
    assert code == 3
    assert output.decode().split("\n") == ["blue green", str(bench.base), "fault", ""]


async def test_death_by_signal_is_128_plus_its_number(bench: Bench) -> None:
    assert await bench.run("sh", "-c", "kill -SEGV $$") == (128 + signal.SIGSEGV, b"")


async def test_a_container_adopted_by_the_next_shim_takes_it_too(bench: Bench) -> None:
    processes.send([bench.pids[0]], signal.SIGKILL)
    await asyncio.wait_for(bench.link.closed.wait(), 10)
    await bench.link.close()
    await bench.open()
    code, output = await bench.run("sh", "-c", "echo $COLOUR; pwd")
    assert (code, output.decode().split("\n")[:2]) == (0, ["blue green", str(bench.base)])


async def test_a_program_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(exec_link.CannotStart, match=r'exec: "nope": executable file not found in'):
        await bench.run("nope")
    with pytest.raises(exec_link.CannotStart, match="a command is needed"):
        await bench.run()


async def test_a_container_that_does_not_run_takes_none(bench: Bench) -> None:
    with pytest.raises(exec_link.NotRunning):
        await exec_link.run(bench.socket, f"{ids.new_uid()}/main/0", ["true"], timeout_s=5)
    await bench.link.stop(bench.id, grace_s=0)
    await waiting.wait_until_async(lambda: bench.ended, what="the container ended")
    with pytest.raises(exec_link.NotRunning):
        await bench.run("true")


async def test_no_shim_is_an_error_of_its_own(bench: Bench) -> None:
    with pytest.raises(errors.ShimAway):
        await exec_link.run(bench.base / "nobody", bench.id, ["true"], timeout_s=5)


async def test_a_process_that_takes_too_long_is_killed(bench: Bench) -> None:
    with pytest.raises(TimeoutError):
        await bench.run("sh", "-c", "trap '' HUP TERM; sleep 301; sleep 302", timeout_s=0.3)
    await waiting.wait_until_async(lambda: not running("301"), what="it is gone")


async def test_only_so_much_output_is_kept(bench: Bench) -> None:
    code, output = await bench.run(sys.executable, "-c", "print('x' * 1_000_000)")
    assert (code, len(output)) == (0, exec_link.OUTPUT)


async def test_input_and_output_pass_in_full(bench: Bench) -> None:
    process, input_, output = await bench.start(["cat"])
    content = os.urandom(1 << 20)
    reading = asyncio.create_task(all_of(output))
    assert await input_.write(content)
    input_.close()
    assert await reading == content
    assert await process.wait() == 0
    await process.close()


async def test_a_process_that_reads_no_more_says_so(bench: Bench) -> None:
    process, input_, output = await bench.start(["sh", "-c", "exec <&-; echo closed; sleep 300"])
    assert await output.read() == b"closed\n"
    assert not await input_.write(b"x" * (1 << 20))
    output.close()
    input_.close()
    await process.close()
    await waiting.wait_until_async(lambda: not alive(process), what="it was hung up on")


async def test_a_terminal_is_one(bench: Bench) -> None:
    script = "tty >/dev/null && read word && stty size && echo $word $TERM && test -t 2"
    process, input_, output = await bench.start(["sh", "-c", script], tty=True)
    input_.resize(width=77, height=33)
    assert await input_.write(b"hello\n")
    assert (await all_of(output)).split() == [b"hello", b"33", b"77", b"hello", b"xterm"]
    assert await process.wait() == 0
    input_.close()
    await process.close()


async def test_control_c_interrupts_what_runs_in_the_terminal(bench: Bench) -> None:
    process, input_, output = await bench.start(["sh", "-c", "echo on; sleep 300"], tty=True)
    assert await output.read() == b"on\r\n"
    assert await input_.write(b"\x03")
    assert await asyncio.wait_for(process.wait(), 5) == 128 + signal.SIGINT
    output.close()
    input_.close()
    await process.close()


async def test_it_ends_with_its_container(bench: Bench) -> None:
    process, input_, output = await bench.start(["sh", "-c", "trap '' TERM HUP; echo on; read x"])
    assert await output.read() == b"on\n"
    await bench.link.stop(bench.id, grace_s=0)
    assert await asyncio.wait_for(process.wait(), 10) == 128 + signal.SIGKILL
    await waiting.wait_until_async(lambda: bench.ended, what="the container ended")
    output.close()
    input_.close()
    await process.close()


async def test_a_shim_that_dies_leaves_the_end_unknown(bench: Bench) -> None:
    process, input_, output = await bench.start(["cat"])
    processes.send([bench.pids[0]], signal.SIGKILL)
    with pytest.raises(errors.ShimAway):
        await asyncio.wait_for(process.wait(), 10)
    output.close()
    input_.close()
    await process.close()
    await asyncio.wait_for(bench.link.closed.wait(), 10)
    await bench.link.close()
    await bench.open()


async def test_hostile_requests_do_not_hurt(bench: Bench) -> None:
    for line in (b'{"n": 1, "do": "exec"}', b'{"n": 1, "do": "exec", "container": {}}', b"[]"):
        reader, writer = await asyncio.open_unix_connection(str(bench.socket))
        writer.write(line + b"\n")
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
    reader, writer = await asyncio.open_unix_connection(str(bench.socket))
    request = f'{{"n": 1, "do": "exec", "container": "{bench.id}", "argv": ["true"]}}'
    writer.write(request.encode() + b"\n")
    assert b"needs 3 descriptors" in await reader.read()
    writer.close()
    assert (await bench.run("true"))[0] == 0


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


def alive(process: exec_link.Process) -> bool:
    identity = processes.identify(process.pid)
    return identity is not None and identity.alive()
