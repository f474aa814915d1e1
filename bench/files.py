"""Measures file jobs: uploads, indexes, a large sample end to end, requests, merges, many parts.

    python bench/files.py [--repeat N] [--only WORD] [--no-gates] [--wait S] [--json FILE]

WORD is upload, index, sample, parts, requests or merge. Every figure has a floor measured
alternately with it: `file_floors.py` is the shape of a file service with nothing in it. Run by
`make bench`. Exits with 1 when a gate is missed.
"""

import contextlib
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import file_floors
import frame
import loading
import machine
from figures import Figure, Gate

sys.path.insert(0, str(frame.HERE.parent / "tests"))

from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.data.records import in_place_indexing, intake
from kilnwork.data.stores import local
from kilnwork.jobs.work import part, reduce
from kilnwork.kit import clock
from support import up_server as up_support

MB = 1_000_000
LARGE_LINES = 6_000_000
SAMPLE_LINES = 1_250_000
SMALL = b'{"id": "1", "value1": 3, "value2": 4, "op": "+"}\n'
CONNECTIONS = 32
LOAD_S = 4.0
BLOCK_BYTES = 1 << 20
CHUNK_BYTES = 1 << 18
STATUS_BYTES = 256 << 10


def sample_line(n: int) -> str:
    """Return a line of the sample: a small sum."""
    value1, value2 = n * 7919 % 99991, n * 104729 % 999983
    numbers = f'"value1": {value1}, "value2": {value2}'
    return f'{{ "id": "{n}", {numbers}, "op": "{"+-*/"[n & 3]}", "pad": "{"abcdef"[: n % 7]}" }}\n'


def write_sample(path: Path, lines: int) -> Path:
    """Write a file of small sums, always the same."""
    with path.open("wb", buffering=BLOCK_BYTES) as file:
        for first in range(0, lines, 20_000):
            numbers = range(first, min(first + 20_000, lines))
            file.write("".join(map(sample_line, numbers)).encode())
    return path


class Home:
    """A `kiln up` with two slots, and its Jobs API on the plain port."""

    def __init__(self, directory: Path) -> None:
        self._up = up_support.UpServer(directory / "home", workdir=directory, slots=2)
        self._up.start()
        endpoints = json.loads((self._up.data / "endpoints.json").read_text())
        self.pid = int(endpoints["pid"])
        self.port = int(endpoints["http"].rpartition(":")[2])
        token = (self._up.data / "token").read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._up.stop()

    def upload(self, file: Path, query: str, *, form: bool = False) -> tuple[float, Any]:
        """Return the seconds of an upload, and the job's document."""
        path = f"/jobs?{query}"
        return loading.upload(self.port, path, file, headers=self.headers, form=form)

    def get(self, path: str) -> bytes:
        """Return the body of a response."""
        return loading.get(self.port, path, headers=self.headers)

    def finished(self, job: str) -> Any:
        """Return the job's document once it has succeeded."""
        while True:
            document = json.loads(self.get(f"/jobs/{job}?wait=60"))
            if document["phase"] == "Succeeded":
                return document
            if document["phase"] in ("Failed", "Cancelled"):
                raise AssertionError(f"the job ended otherwise: {document}")

    def run(self, file: Path, query: str) -> Any:
        """Upload and wait; return the document."""
        return self.finished(self.upload(file, query)[1]["id"])

    def delete(self, document: Any) -> None:
        """Delete the job and free its disk space for the next measurement."""
        link = loading.head("DELETE", f"/jobs/{document['id']}", more=self.headers)
        loading.ask(self.port, link)
        directory = self._up.data / "files" / document["storageBlobPrefix"]
        while directory.exists():
            time.sleep(0.01)

    def resident_mib(self) -> float:
        """Return the resident memory of the server's process."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """Return the peak of its resident memory since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Reset the peak of `peak_mib` (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"/proc/{self.pid}/status has no {name}")


def uploads(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure a large file: sent, indexed, written and synced, beside the same without an index."""
    file = write_sample(directory / "large.jsonl", LARGE_LINES)
    size = file.stat().st_size / MB
    rates: dict[bool, list[float]] = {False: [], True: []}
    floor, growth = [], 0.0
    with file_floors.Server(directory) as bare, Home(directory) as home:
        for number in range(repeat + 1):
            seconds, response = loading.upload(bare.port, "/raw", file, headers={})
            if response["lines"] != LARGE_LINES:
                raise AssertionError(f"the floor counted {response}")
            floor.append(size / seconds)
            for form, taken in rates.items():
                before = home.resident_mib()
                home.forget_peak()
                seconds, document = home.upload(file, "suspend=true", form=form)
                if document["input"]["lines"] != LARGE_LINES:
                    raise AssertionError(f"the server counted {document['input']}")
                taken.append(size / seconds)
                if number:  # the first one also loads code and grows pools
                    growth = max(growth, home.peak_mib() - before)
                home.delete(document)
    for form, name in ((False, "raw body"), (True, "multipart form")):
        yield Figure(
            f"upload and split, {name}",
            machine.median(rates[form][1:]),
            "MB/s",
            machine.median(floor[1:]),
            Gate(at_least=300),
        )
    yield Figure("upload and split, growth of the server", growth, "MiB", None, Gate(at_most=32))


def indexes(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure indexing an existing file; the floor finds the same positions and adds nothing up."""
    file = write_sample(directory / "large.jsonl", LARGE_LINES)
    size = file.stat().st_size / MB
    spec = filejobs.FileJobSpec()

    def chunks() -> Iterator[bytes]:
        with file.open("rb", buffering=0) as source:
            while chunk := source.read(CHUNK_BYTES):
                yield chunk

    def indexed(*, digest: bool) -> filejobs.Manifest:
        with file.open("rb", buffering=0) as source:
            return in_place_indexing.manifest(source.fileno(), spec, digest=digest)

    floor, sums, digest, coming = [], [], [], []
    for _ in range(repeat):
        began = time.perf_counter()
        starts = file_floors.count_lines(file, spec.items_per_part)
        floor.append(size / (time.perf_counter() - began))
        began = time.perf_counter()
        manifest = indexed(digest=False)
        sums.append(size / (time.perf_counter() - began))
        if [each.start for each in manifest.parts] != starts[: len(manifest.parts)]:
            raise AssertionError("the index and its floor found different parts")
        digest.append(size / machine.timed(lambda: indexed(digest=True)))
        coming.append(size / machine.timed(lambda: _taken_in(chunks(), spec)))
    least = machine.median(floor)
    gate = Gate(at_least=1_500)
    yield Figure("index of a file: parts, crc32", machine.median(sums), "MB/s", least, gate)
    yield Figure("the same, and sha256", machine.median(digest), "MB/s", least)
    yield Figure("index of what comes in, one thread", machine.median(coming), "MB/s", least)


def _taken_in(chunks: Iterator[bytes], spec: filejobs.FileJobSpec) -> None:
    taker = intake.Intake(spec)
    for chunk in chunks:
        for _ in taker.feed(chunk):
            pass
    taker.finish()


def sample(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure 1.25 million lines computed on two slots, beside one process that computes line by
    line.
    """
    file = write_sample(directory / "sample.jsonl", SAMPLE_LINES)
    query = "mapper=calculator&itemsPerPart=50000"
    alone, mapped, whole, spent = [], [], [], []
    with Home(directory) as home:
        warm = write_sample(directory / "warm.jsonl", 1_000)
        document = home.run(warm, "mapper=calculator&itemsPerPart=100")
        processes = machine.tree(home.pid)
        for _ in range(repeat):
            before = _children_s()
            alone.append(file_floors.computed(file, directory / "alone"))
            work_s = _children_s() - before
            home.delete(document)  # else the job alone would pay for memory never used before
            began = time.perf_counter()
            _, document = home.upload(file, query)
            accepted, used = time.perf_counter(), machine.cpu_s(processes)
            document = home.finished(document["id"])
            ended = time.perf_counter()
            spent.append((machine.cpu_s(processes) - used) / work_s)
            mapped.append(ended - accepted)
            whole.append(ended - began)
        parts, job = document["parts"], document["id"]
        if home.get(f"/jobs/{job}/results") != (directory / "alone").read_bytes():
            raise AssertionError("the result is not what one process makes of the file")
    one = machine.median(alone)
    yield Figure(
        "1.25 M lines, two slots against one process",
        one / machine.median(mapped),
        "×",
        None,
        Gate(at_least=1.7),
        {"one process s": round(one, 2), "parts": parts},
    )
    yield Figure("the same with the upload", one / machine.median(whole), "×")
    yield Figure("the same, CPU beside that of the one process", machine.median(spent), "×")
    lost = 2 * machine.median(mapped) - one
    yield Figure("the same, slot time beyond the work, a part", lost / parts * 1e3, "ms")


def _children_s() -> float:
    """Return the CPU seconds of processes that we have started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def many_parts(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure 10,000 parts of one line: the cost of a part, and the size of documents."""
    file = write_sample(directory / "parts.jsonl", filejobs.MAX_PARTS)
    seconds, largest = [], 0
    with Home(directory) as home:
        home.run(write_sample(directory / "warm.jsonl", 1_000), "mapper=identity&itemsPerPart=100")
        for _ in range(max(1, repeat // 3)):
            began = time.perf_counter()
            document = home.run(file, "mapper=identity&itemsPerPart=1")
            seconds.append(time.perf_counter() - began)
            if document["parts"] != filejobs.MAX_PARTS:
                raise AssertionError(f"expected 10,000 parts: {document}")
            job = document["id"]
            if home.get(f"/jobs/{job}/results") != file.read_bytes():
                raise AssertionError("the results are not in order")
            for path in (f"/jobs/{job}", "/jobs", f"/jobs/{job}/parts"):
                largest = max(largest, len(home.get(path)))
    each = machine.median(seconds) / filejobs.MAX_PARTS
    yield Figure("10,000 parts of a line, each", each * 1e3, "ms")
    yield Figure(
        "the same, largest document", largest / 1024, "KiB", None, Gate(at_most=STATUS_BYTES / 1024)
    )


def requests(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure small requests on 32 connections, beside a server that sends a constant."""
    small = directory / "small.jsonl"
    small.write_bytes(SMALL)
    numbers = itertools.count()
    found: dict[str, list[loading.Load]] = {"GET": [], "POST": []}
    floors: dict[str, list[loading.Load]] = {"GET": [], "POST": []}
    with file_floors.Server(directory) as bare, Home(directory) as home:
        job = home.run(small, "mapper=calculator")["id"]
        read = loading.head("GET", f"/jobs/{job}", more=home.headers)

        def create() -> bytes:
            more = {**home.headers, "Idempotency-Key": f"bench-{next(numbers)}"}
            path = "/jobs?suspend=true"
            return loading.head("POST", path, length=len(SMALL), more=more) + SMALL

        asked: dict[str, Callable[[], bytes]] = {"GET": lambda: read, "POST": create}
        for _ in range(repeat):
            for method, request in asked.items():
                for port, into in ((bare.port, floors), (home.port, found)):
                    load = loading.send_many(port, request, connections=CONNECTIONS, seconds=LOAD_S)
                    into[method].append(load)
    for method, name, least in (
        ("GET", "GET of a job", 15_000),
        ("POST", "POST of a small job, durable", 5_000),
    ):
        taken = found[method]
        rate = machine.median([load.rate for load in taken])
        floor = machine.median([load.rate for load in floors[method]])
        yield Figure(name, rate, "/s", floor, Gate(at_least=least))
        late = [load for each in taken for load in each.latencies_s]
        usual = [load for each in floors[method] for load in each.latencies_s]
        yield Figure(
            f"{name}, p99",
            machine.percentile(late, 99) * 1e3,
            "ms",
            machine.percentile(usual, 99) * 1e3,
            Gate(at_most=20),
        )


def merges(directory: Path, repeat: int) -> Iterator[Figure]:
    """Measure merging outputs into one result, verified and published, beside copying.

    Outputs of 60 parts stay where they are; those of 600 are below the size limit for that, so they
    are copied and synced.
    """
    file = write_sample(directory / "large.jsonl", LARGE_LINES)
    for lines, name in (
        (100_000, "merge of 60 parts, in place"),
        (10_000, "merge of 600 parts, copied and synced"),
    ):
        rates, floor = _measure_merge(directory / str(lines), file, lines=lines, repeat=repeat)
        gate = Gate(at_least=400)
        yield Figure(name, machine.median(rates), "MB/s", machine.median(floor), gate)


def _measure_merge(
    directory: Path, file: Path, *, lines: int, repeat: int
) -> tuple[list[float], list[float]]:
    """Return MB/s of the merge and of the floor. `lines`: of a part."""
    root = directory / "store"
    store = local.LocalStore(root)
    manifest = _map_parts(store, file, lines=lines)
    sources = [root / f"out/{each.number}-1-1.ndjson" for each in manifest.parts]
    size = manifest.bytes / MB
    rates, floor = [], []
    for run in range(1, repeat + 1):
        floor.append(size / file_floors.copied(sources, directory / "copied"))
        work = filejobs.ReduceWork(
            store=store.url,
            job="bench",
            parts=tuple((each.number, 1) for each in manifest.parts),
            run=run,
        )
        began = time.perf_counter()
        reduce.reduced(
            work, attempt=1, watched=lambda _: _ignore_progress, clock=clock.SystemClock()
        )
        rates.append(size / (time.perf_counter() - began))
        result = part_commits.find(store, reduce.PART, run)
        if result is None or result.output is None or result.output.sha256 != manifest.sha256:
            raise AssertionError("the merged result is not the input")
        store.delete({result.output.key} - {filejobs.OUTPUTS})  # the next one has the same disk
    return rates, floor


def _map_parts(store: local.LocalStore, file: Path, *, lines: int) -> filejobs.Manifest:
    """Map parts whose outputs equal their inputs."""
    taker = intake.Intake(filejobs.FileJobSpec(items_per_part=lines))
    with file.open("rb") as source, store.writer("input") as out:
        while chunk := source.read(BLOCK_BYTES):
            for piece in taker.feed(chunk):
                out.write(piece)
        rest, manifest = taker.finish()
        out.write(rest)
        out.commit()
    for each in manifest.parts:
        work = filejobs.PartWork(
            store=store.url,
            job="bench",
            input="input",
            format=filejobs.InputSpec(),
            part=each,
            run=1,
            mapper=filejobs.Mapper(builtin="identity"),
        )
        part.mapped(work, attempt=1, passed=_ignore_progress, clock=clock.SystemClock())
    return manifest


def _ignore_progress(_: int) -> None:
    """Drop progress reports."""


def shapes(directory: Path | None, repeat: int) -> dict[str, frame.Shape]:
    """Return all measurements by the word that `--only` takes."""

    def beside(shape: Callable[[Path, int], Iterator[Figure]]) -> frame.Shape:
        def measured() -> Iterator[Figure]:
            with tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=directory) as scratch:
                yield from shape(Path(scratch), repeat)

        return measured

    return {
        "upload": beside(uploads),
        "index": beside(indexes),
        "sample": beside(sample),
        "parts": beside(many_parts),
        "requests": beside(requests),
        "merge": beside(merges),
    }


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="files").parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with contextlib.suppress(KeyError):
        del os.environ["KUBECONFIG"]
    return frame.run(shapes(options.directory, options.repeat), options)


if __name__ == "__main__":
    sys.exit(main())
