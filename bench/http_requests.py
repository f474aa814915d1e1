"""Measures tasks that are HTTP requests beside a bare aiohttp loop with the same requests.

    python bench/http_requests.py [--only WORD] [--repeat N] [--no-gates] [--wait S] [--directory
    DIR]
                                  [--json FILE]

A dispatcher with its journal on disk, executors and a server of a few lines, each in a process of
its own. `rate`: requests a second, bare before and after; `share`: how evenly four executors get
them; `polls`: what one executor holds that waits for ten thousand results. Run by `make bench`.
"""

import asyncio
import collections
import gc
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import aiohttp  # noqa: E402
import frame  # noqa: E402
import uvloop  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.dispatch import model  # noqa: E402
from kilnwork.dispatch.hub import hub as hubs  # noqa: E402
from kilnwork.executors.http import service  # noqa: E402
from kilnwork.kit import ids  # noqa: E402
from support import http_executors  # noqa: E402
from support import hubs as hub_support  # noqa: E402

COUNT = 5000
SLOTS = 100
"""As `kiln executor http` has them; the bare loop sends so many at once, too."""
EXECUTORS = 4
SLOW_S = 0.5
"""Of the requests that are shared: slots are what is shared, not how much CPU an executor got."""

POLLS = 10_000
MAX_S = 300.0

_DONE = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok": 123}'
)
_LATER = (
    b"HTTP/1.1 202 Accepted\r\nLocation: /poll/abc\r\nRetry-After: 600\r\n"
    b"Content-Type: application/json\r\nContent-Length: 17\r\n\r\n"
    b'{"state": "busy"}'
)
_forked = multiprocessing.get_context("fork")


class Server(asyncio.Protocol):
    """Responds with as little work as possible: at once, or to `/slow` after a while."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._rest = transport, b""

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head, self._rest = self._rest[:end], self._rest[end + 4 :]
            if b" /slow" in head:
                asyncio.get_running_loop().call_later(SLOW_S, self._transport.write, _DONE)
            else:
                self._transport.write(_LATER if b" /later" in head else _DONE)


async def serve(pipe: Connection) -> None:
    made = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    pipe.send(made.sockets[0].getsockname()[1])
    await asyncio.to_thread(pipe.recv)


async def request_all(pipe: Connection, url: str) -> None:
    """Send so many requests and read their JSON: the floor."""
    left = iter(range(COUNT))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def some() -> None:
            for _ in left:
                async with session.get(url) as response:
                    assert (await response.json())["ok"] == 123

        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(SLOTS)))
        pipe.send(COUNT / (time.perf_counter() - began))


async def execute(pipe: Connection, directory: Path, name: str) -> None:
    """Run what `kiln executor http` runs, once there is a dispatcher; it collects garbage as
    seldom.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    await asyncio.to_thread(pipe.recv)
    settings = service.Settings(name=name, slots=SLOTS, labels={}, policy=http_executors.LOCAL)
    made = http_executors.executor(
        directory, settings, http_executors.EmptyReader(), on_failure=print
    )
    await made.start(say=lambda _: None)
    pipe.send("ready")
    await asyncio.to_thread(pipe.recv)
    pages = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]
    pipe.send(int(pages) / 1024)
    await made.stop(say=lambda _: None)


class Process:
    """A coroutine in a process of its own, and a pipe to it."""

    def __init__(self, work: Callable[..., Any], *given: Any) -> None:
        self._pipe, other = _forked.Pipe()
        self._process = _forked.Process(target=lambda: uvloop.run(work(other, *given)), daemon=True)
        self._process.start()

    def get(self) -> Any:
        """Return the next message of the process."""
        if not self._pipe.poll(MAX_S):
            raise TimeoutError("a process of the measurement says nothing")
        return self._pipe.recv()

    def go_on(self) -> None:
        """Let the process continue."""
        self._pipe.send("go on")

    def close(self) -> None:
        self._process.terminate()
        self._process.join(10)


@contextmanager
def process(work: Callable[..., Any], *given: Any) -> Iterator[Process]:
    made = Process(work, *given)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def executors(directory: Path, many: int) -> Iterator[list[Process]]:
    """Fork executors before there is a loop and a journal, which a child must not inherit."""
    with ExitStack() as stack:
        yield [stack.enter_context(process(execute, directory, f"e{n}")) for n in range(many)]


@asynccontextmanager
async def dispatching(directory: Path, made: list[Process]) -> AsyncIterator[hubs.Hub]:
    """Run a dispatcher with these executors connected; they stop before it does."""
    async with hub_support.running(directory) as hub:
        for one in made:
            one.go_on()
            await asyncio.to_thread(one.get)
        yield hub
        for one in made:
            await asyncio.to_thread(one.close)


def submit(hub: hubs.Hub, url: str, many: int, **http: Any) -> list[ids.TaskId]:
    spec = http_executors.spec(url, **http)
    tasks = [ids.new_task_id() for _ in range(many)]
    hub.participation.submit_now(
        (
            model.Submission(task=task, namespace="default", name="", spec=spec, declared=False)
            for task in tasks
        ),
        new=True,
    )
    return tasks


async def rate(
    directory: Path, url: str, made: list[Process]
) -> tuple[float, collections.Counter[str]]:
    """Return tasks a second from the submission to the last stored result, and tasks by
    executor.
    """
    async with dispatching(directory, made) as hub:
        ran: collections.Counter[str] = collections.Counter()
        over = asyncio.Event()

        def changed(changes: Any) -> None:
            for change in changes:
                if change.over:
                    ran[change.worker] += 1
            if ran.total() == COUNT:
                over.set()

        began = time.perf_counter()
        tasks = submit(hub, url, COUNT)
        hub.participation.follow(set(tasks), changed)
        async with asyncio.timeout(MAX_S):
            await over.wait()
        took = time.perf_counter() - began
        assert hub_support.view(hub, tasks[-1]).state == "Success"
        return COUNT / took, ran


async def waiting(directory: Path, url: str, made: list[Process]) -> float:
    """Return the MiB of an executor that waits for so many results of other servers."""
    async with dispatching(directory, made) as hub:
        left = collections.deque(submit(hub, url, POLLS, polling={}))
        async with asyncio.timeout(MAX_S):
            while left:
                view = hub.view(left[0])
                if view is not None and view.reason == "WaitingForResult":
                    left.popleft()
                else:
                    await asyncio.sleep(0.2)
        made[0].go_on()
        return float(await asyncio.to_thread(made[0].get))


def shapes(directory: Path | None, repeat: int) -> dict[str, frame.Shape]:
    """Return all measurements by name."""

    def scratch() -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=directory)

    def rates() -> Iterator[Figure]:
        taken, bare = [], []
        with process(serve) as server:
            url = f"http://127.0.0.1:{server.get()}/x"
            for _ in range(repeat):
                with process(request_all, url) as before:
                    bare.append(before.get())
                with scratch() as data, executors(Path(data), 1) as made:
                    taken.append(uvloop.run(rate(Path(data), url, made))[0])
        yield Figure(
            "tasks that are HTTP requests, durable", statistics.median(taken), "/s",
            statistics.median(bare), Gate(at_least=0.5, ratio=True),
            more={"beside": "a bare aiohttp loop with the same requests"},
        )  # fmt: skip

    def shares() -> Iterator[Figure]:
        with (
            process(serve) as server,
            scratch() as data,
            executors(Path(data), EXECUTORS) as made,
        ):
            url = f"http://127.0.0.1:{server.get()}/slow"
            ran = uvloop.run(rate(Path(data), url, made))[1]
        even = COUNT / EXECUTORS
        off = max(abs(ran[f"e{number}"] - even) / even for number in range(EXECUTORS))
        yield Figure(
            f"{EXECUTORS} executors: furthest from an even share", off * 100, "%",
            gate=Gate(at_most=10), more=dict(ran),
        )  # fmt: skip

    def polls() -> Iterator[Figure]:
        with process(serve) as server, scratch() as data, executors(Path(data), 1) as made:
            url = f"http://127.0.0.1:{server.get()}/later"
            held = uvloop.run(waiting(Path(data), url, made))
        yield Figure(f"executor with {POLLS:,} waiting polls", held, "MiB", gate=Gate(at_most=200))

    return {"rate": rates, "share": shares, "polls": polls}


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="http").parse_args()
    return frame.run(shapes(options.directory, options.repeat), options)


if __name__ == "__main__":
    sys.exit(main())
