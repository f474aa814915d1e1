"""Measures Jobs and JobConfigs beside bare objects, and beside spawned tasks, on one machine.

    python bench/jobs.py [--only WORD] [--short] [--repeat N] [--no-gates] [--wait S] [--directory
    DIR]
                         [--json FILE]

One `kiln up` for each shape; Jobs and what they stand beside are made by the same client, in turn.
Run by `make bench`.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import frame  # noqa: E402
import machine  # noqa: E402
import work  # noqa: E402
from figures import Figure, Gate  # noqa: E402

import kilnwork as kiln  # noqa: E402
from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import up_server as up_support  # noqa: E402

NS = "default"
SLOTS = 2
WRITERS = 16
"""Requests at once; more are no faster on two cores."""
JOBS = 1_000
INDEXES = 100_000
TASKS = 20_000
"""Spawned tasks of one measurement; the rate of 100,000 is the same."""
CONFIGS = 10_000
STEPS = 60
TICKS_S = 60.0
"""How long ticks are watched."""
IDLE_S = 60.0

_FINAL = {"Succeeded", "Failed", "Killed", "AdmissionError", "Success"}
_OBJECT_BYTES = 256 * 1024


def noop() -> meta.JsonObject:
    """Return a task that calls an empty function on a warm worker."""
    return {"call": {"function": "work:nothing"}}


def job(name: str, indexes: int | None = None, **spec: Any) -> meta.JsonObject:
    """Return a Job of one task, or of so many indexes."""
    template = {"taskTemplate": spec.pop("task", noop())}
    if indexes is not None:
        template["parallelism"] = {"withCount": indexes}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def config(name: str, expression: str) -> meta.JsonObject:
    """Return a JobConfig whose Jobs do nothing."""
    return {
        "metadata": {"name": name},
        "spec": {
            "concurrency": {"policy": "Allow"},
            "schedule": {"cron": {"expression": expression, "timezone": "UTC"}},
            "template": {"spec": {"taskTemplate": noop()}},
        },
    }


def bare_object(name: str) -> meta.JsonObject:
    """Return an object that no controller acts on, as long as a Job."""
    return {"metadata": {"name": name}, "data": {"spec": "x" * 200}}


class Seen:
    """Objects of a kind, followed by a watch: when each was first seen, and first seen finished."""

    def __init__(self) -> None:
        self.there: dict[str, float] = {}
        """Wall clock, by name."""
        self.over: dict[str, float] = {}
        self._news = asyncio.Event()

    async def until(self, what: Callable[[], bool], *, timeout_s: float = 600.0) -> None:
        """Wait until `holds` is true."""
        async with asyncio.timeout(timeout_s):
            while not what():
                self._news.clear()
                await self._news.wait()

    def take(self, found: dict[str, Any]) -> None:
        name, status = found["metadata"]["name"], found.get("status") or {}
        self.there.setdefault(name, time.time())
        if is_over(status):
            self.over.setdefault(name, time.time())
        self._news.set()


def is_over(status: meta.JsonObject) -> bool:
    """Return whether a Job, a Task or a batch Job has finished, by its status."""
    ends = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    final = (status.get("phase") or status.get("state")) in _FINAL
    return final or bool(ends & {"Complete", "Failed"})


@contextlib.asynccontextmanager
async def following(
    kube: kube_client.Client, kind: api_resources.Resource = kinds.JOBS
) -> AsyncIterator[Seen]:
    """Follow objects of a kind until the end of the block."""
    listed = await kube.list(kind, NS, type=meta.Partial)
    seen = Seen()

    async def follow(version: str) -> None:
        while True:
            async for change in kube.watch(kind, NS, resource_version=version, type=dict):
                version = change.resource_version
                if change.object:
                    seen.take(change.object)

    running = asyncio.create_task(follow(listed.resource_version))
    try:
        yield seen
    finally:
        running.cancel()


async def create_all(
    kube: kube_client.Client, kind: api_resources.Resource, bodies: Iterable[meta.JsonObject]
) -> float:
    """Create all of them, `WRITERS` at once; return the seconds."""
    left = iter(bodies)

    async def create() -> None:
        for body in left:
            await kube.create(kind, body, NS)

    began = time.perf_counter()
    await asyncio.gather(*(create() for _ in range(WRITERS)))
    return time.perf_counter() - began


async def delete_all(
    kube: kube_client.Client, kind: api_resources.Resource, names: Iterable[str]
) -> float:
    """Delete all of them; return the seconds."""
    left = iter(names)

    async def delete() -> None:
        for name in left:
            await kube.delete(kind, name, NS, propagation="Background")

    began = time.perf_counter()
    await asyncio.gather(*(delete() for _ in range(WRITERS)))
    return time.perf_counter() - began


async def bare_rates(kube: kube_client.Client, count: int, word: str) -> tuple[float, float]:
    """Measure bare objects created a second, and created and deleted a second."""
    names = [f"bare-{word}-{n}" for n in range(count)]
    created = await create_all(kube, api_resources.CONFIG_MAPS, map(bare_object, names))
    deleted = await delete_all(kube, api_resources.CONFIG_MAPS, names)
    return count / created, count / (created + deleted)


async def run_all(
    kube: kube_client.Client,
    bodies: list[meta.JsonObject],
    kind: api_resources.Resource = kinds.JOBS,
) -> float:
    """Create Jobs and wait until all have finished; return the seconds."""
    async with following(kube, kind) as seen:
        began = time.perf_counter()
        await create_all(kube, kind, bodies)
        await seen.until(lambda: len(seen.over) >= len(bodies))
        return time.perf_counter() - began


async def version(kube: kube_client.Client) -> int:
    """Return the resourceVersion, which every write raises by one."""
    listed = await kube.list(api_resources.CONFIG_MAPS, NS, type=meta.Partial)
    return int(listed.resource_version)


def connected(server: up_support.UpServer) -> kube_client.Client:
    return kube_client.Client(kube_config.load(server.data / "kubeconfig"))


async def rates(server: up_support.UpServer, repeat: int) -> list[Figure]:
    """Measure Jobs created and finished a second, beside bare creates with deletes."""
    floors, found = [], []
    async with connected(server) as kube:
        await run_all(kube, [job("warm")])
        for number in range(repeat):
            floors.append((await bare_rates(kube, JOBS, str(number)))[1])
            bodies = [job(f"rate-{number}-{n}") for n in range(JOBS)]
            found.append(JOBS / await run_all(kube, bodies))
            await delete_all(kube, kinds.JOBS, [body["metadata"]["name"] for body in bodies])
    gate = Gate(at_least=0.3, ratio=True)
    floor = statistics.median(floors)
    return [Figure("Jobs created → finished", statistics.median(found), "/s", floor, gate)]


async def writes(server: up_support.UpServer, repeat: int) -> list[Figure]:
    """Measure API writes of a Job, by its number of indexes."""
    figures = []
    async with connected(server) as kube:
        await run_all(kube, [job("warm")])
        for indexes, jobs in ((1, 50), (10, 50), (999, 3)):
            counts = []
            for number in range(repeat):
                before = await version(kube)
                names = [f"writes-{indexes}-{number}-{n}" for n in range(jobs)]
                await run_all(kube, [job(name, indexes) for name in names])
                await asyncio.sleep(2.5)  # what is written after the end
                counts.append((await version(kube) - before) / jobs)
            what = f"API writes of a Job of {indexes}"
            figures.append(Figure(what, statistics.median(counts), "", gate=Gate(at_most=5)))
    return figures


async def indexes(server: up_support.UpServer, count: int) -> list[Figure]:
    """Measure indexes a second of one Job, beside spawned tasks; the size of its object, and
    memory.
    """
    pids = machine.tree(server.process.pid) if server.process else set()
    async with connected(server) as kube:
        await run_all(kube, [job("warm", 2_000)])
        spawned = [await asyncio.to_thread(spawn, server, TASKS)]
        before = machine.memory_mib(pids)[1]
        rate = count / await run_all(kube, [job("large", count)])
        grown = machine.memory_mib(pids)[1] - before
        spawned.append(await asyncio.to_thread(spawn, server, TASKS))
        size = len(str(await kube.get(kinds.JOBS, "large", NS)))
    floor = statistics.mean(spawned)
    gate = Gate(at_least=0.7, ratio=True)
    return [
        Figure(f"no-op indexes, {count:,} of one Job", rate, "/s", floor, gate),
        Figure("its object", size / 1024, "KiB", gate=Gate(at_most=_OBJECT_BYTES / 1024)),
        Figure("its memory, while it is kept", grown, "MiB", gate=None),
    ]


def spawn(server: up_support.UpServer, count: int) -> float:
    """Return spawned tasks a second: submitted by a driver, until it has all results."""
    with kiln.connect(server.data):
        [future.result() for future in [work.echo.submit(0, "") for _ in range(1_000)]]
        began = time.perf_counter()
        futures = [work.echo.submit(number, "") for number in range(count)]
        for future in futures:
            future.result()
        return count / (time.perf_counter() - began)


async def ticks(server: up_support.UpServer, count: int) -> list[Figure]:
    """Measure the CPU of schedules that are not due, then the delay of Jobs of spread ticks."""
    assert server.process is not None
    manager = {server.process.pid}
    async with connected(server) as kube:
        await run_all(kube, [job("warm")])
        bodies = (config(f"idle-{n}", "H H H 1 1 ? *") for n in range(count))
        await create_all(kube, kinds.JOB_CONFIGS, bodies)
        await wait_until_idle(manager)
        idle = await cpu_percent(manager, IDLE_S)
        names = [f"idle-{n}" for n in range(count)]
        await delete_all(kube, kinds.JOB_CONFIGS, names)
        every = max(1, count // 1_000)
        bodies = (config(f"tick-{n}", f"H H/{every} * * * * *") for n in range(count))
        await create_all(kube, kinds.JOB_CONFIGS, bodies)
        async with following(kube) as seen, following(kube, api_resources.CONFIG_MAPS) as others:
            await wait_until_idle(manager)
            since = time.time()
            busy, sent = await asyncio.gather(
                cpu_percent(manager, TICKS_S), create_one_by_one(kube)
            )
        late = sorted(at - tick_of(name) for name, at in seen.there.items() if at > since)
    p99 = machine.percentile(late, 99) * 1e3
    beside = [others.there[name] - at for name, at in sent.items() if name in others.there]
    more = {
        "bare create → watch, p99 ms": round(machine.percentile(beside, 99) * 1e3, 1),
        "p50 ms": round(statistics.median(late) * 1e3, 1),
        "max ms": round(late[-1] * 1e3),
        "ticks/s": round(len(late) / TICKS_S, 1),
        "CPU %": round(busy, 1),
    }
    return [
        Figure(f"{count:,} schedules, none due, CPU", idle, "%", gate=Gate(at_most=5)),
        Figure(
            f"{count:,} schedules, tick → Job, p99", p99, "ms", gate=Gate(at_most=100), more=more
        ),
    ]


async def create_one_by_one(kube: kube_client.Client) -> dict[str, float]:
    """Create a bare object now and then while ticks are watched; return when each was sent."""
    sent = {}
    until = time.monotonic() + TICKS_S - 1
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        name = f"beside-{len(sent)}"
        sent[name] = time.time()
        await kube.create(api_resources.CONFIG_MAPS, bare_object(name), NS)
    return sent


def tick_of(name: str) -> int:
    """Return the tick of a Job that a schedule made."""
    return int(name.rpartition("-")[2])


async def cpu_percent(pids: set[int], seconds: float) -> float:
    """Return the CPU that these processes use, in percent of a core."""
    began, before = time.monotonic(), machine.cpu_s(pids)
    await asyncio.sleep(seconds)
    return 100 * (machine.cpu_s(pids) - before) / (time.monotonic() - began)


async def wait_until_idle(pids: set[int]) -> None:
    """Wait until these processes have finished their work."""
    last = float("inf")
    for _ in range(30):
        found = await cpu_percent(pids, 2.0)
        if found > last * 0.9 and found < 50:
            return
        last = found


async def same_second(server: up_support.UpServer, count: int) -> list[Figure]:
    """Measure many schedules due in one second: none is lost; Jobs made a second."""
    async with connected(server) as kube:
        await run_all(kube, [job("warm")])
        floor = (await bare_rates(kube, min(count, 4_000), "x"))[0]
        due = int(time.time()) + 20 + count // 80
        at = datetime.fromtimestamp(due, UTC)
        expression = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} ? {at.year}"
        bodies = (config(f"same-{n}", expression) for n in range(count))
        took = await create_all(kube, kinds.JOB_CONFIGS, bodies)
        if time.time() > due - 2:
            raise AssertionError(f"creating {count} JobConfigs took {took:.0f} s: give more time")
        async with following(kube) as seen:
            await seen.until(lambda: len(seen.there) >= count, timeout_s=600)
            last = max(seen.there.values())
            await seen.until(lambda: len(seen.over) >= count, timeout_s=600)
            over = max(seen.over.values())
    if any(tick_of(name) != due for name in seen.there):
        raise AssertionError("a Job has another tick")
    more = {"all made s": round(last - due, 1), "all over s": round(over - due, 1)}
    gate = Gate(at_least=0.7, ratio=True)
    what = f"{count:,} schedules due at once, Jobs made"
    return [Figure(what, count / (last - due), "/s", floor, gate, more)]


async def steps(server: up_support.UpServer, directory: Path) -> list[Figure]:
    """Measure from the run of a dependency of a Job to the Job's own run."""
    figures = []
    async with connected(server) as kube:
        await run_all(kube, [job("warm")])
        for kind in (kinds.JOBS, kinds.TASKS):
            gaps = []
            for number in range(STEPS):
                names = [f"{kind.kind.lower()}-{number}-{part}" for part in ("first", "second")]
                gaps.append(await delay_between(kube, kind, names, notes=directory / names[0]))
            more = {"p50 ms": round(statistics.median(gaps) * 1e3, 1)}
            p99 = machine.percentile(gaps, 99) * 1e3
            what = f"{kind.kind} → Job that depends on it, p99"
            figures.append(Figure(what, p99, "ms", gate=Gate(at_most=100), more=more))
    return figures


async def delay_between(
    kube: kube_client.Client, kind: api_resources.Resource, names: list[str], *, notes: Path
) -> float:
    """Return the seconds from the call of the first to the call of the second, which waits for
    it.
    """
    first, second = names
    task = {"call": {"function": "work:note", "args": [str(notes)]}}
    after = [{"kind": kind.kind, "name": first}]
    async with following(kube) as seen:
        await kube.create(kinds.JOBS, job(second, task=task, dependsOn=after), NS)
        await asyncio.sleep(0.1)
        body = job(first, task=task) if kind is kinds.JOBS else {
            "metadata": {"name": first}, "spec": task
        }  # fmt: skip
        await kube.create(kind, body, NS)
        await seen.until(lambda: second in seen.over, timeout_s=30)
    one, other = map(float, notes.read_text().split())
    return other - one


def shapes(options: Any) -> dict[str, frame.Shape]:
    """Return all measurements by name."""
    less = 5 if options.short else 1

    def measured(measure: Callable[[up_support.UpServer, Path], Any]) -> Iterator[Figure]:
        with tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=options.directory) as scratch:
            server = up_support.UpServer(Path(scratch) / "data", workdir=HERE, slots=SLOTS)
            server.start()
            try:
                yield from asyncio.run(measure(server, Path(scratch)))
            finally:
                server.stop()

    repeat = options.repeat
    found: dict[str, Callable[[up_support.UpServer, Path], Any]] = {
        "rates": lambda server, _: rates(server, repeat),
        "writes": lambda server, _: writes(server, min(repeat, 3)),
        "indexes": lambda server, _: indexes(server, INDEXES // less),
        "steps": steps,
        "ticks": lambda server, _: ticks(server, CONFIGS // less),
        "same-second": lambda server, _: same_second(server, CONFIGS // less),
    }
    return {name: lambda measure=measure: measured(measure) for name, measure in found.items()}


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    parser = frame.parser(__doc__, name="jobs")
    parser.add_argument("--short", action="store_true", help="a fifth of indexes and schedules")
    options = parser.parse_args()
    return frame.run(shapes(options), options, again=False)


if __name__ == "__main__":
    sys.exit(main())
