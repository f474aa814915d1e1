"""Measures a pond beside a plain verified copy from the same source, with agents as processes.

    python bench/pond.py [--only WORD] [--short] [--repeat N] [--no-gates] [--wait S] [--directory
    DIR]
                         [--mib N] [--json FILE]

The source is an HTTP server of its own that counts what it sends. The floor of a prefetch is one
loop that reads the same files over one connection, hashes, writes, and calls fsync for each. Run by
`make bench`.
"""

import asyncio
import hashlib
import http.client
import http.server
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib import request

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import frame  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.api import data_pond  # noqa: E402
from kilnwork.controllers.data_pond import model  # noqa: E402
from kilnwork.data.pond import manifest, shards  # noqa: E402
from support import pond_manager  # noqa: E402

FILES = 50
"""Of 4 MiB each by default: neither tiny nor one."""
NODES = ("node-1", "node-2", "node-3")
PIECE_BYTES = 1 << 20
SMALL_FILES = 400
SMALL_BYTES = 4 << 10


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory = Path()
    sent = 0
    gets = 0

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self._file(body=False)

    def do_GET(self) -> None:
        if self.path == "/-/counts":
            response = json.dumps({"sent": _Handler.sent, "gets": _Handler.gets}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(response)))
            self.end_headers()
            self.wfile.write(response)
        else:
            self._file(body=True)

    def _file(self, *, body: bool) -> None:
        with (self.directory / self.path.lstrip("/")).open("rb") as file:
            found = os.fstat(file.fileno())
            self.send_response(200)
            self.send_header("ETag", f'"{found.st_size}-{found.st_mtime_ns}"')
            self.send_header("Content-Length", str(found.st_size))
            self.end_headers()
            if body:
                self.wfile.flush()
                _Handler.gets += 1
                at = 0
                while at < found.st_size:
                    at += os.sendfile(
                        self.connection.fileno(), file.fileno(), at, found.st_size - at
                    )
                _Handler.sent += found.st_size


def serve(directory: str) -> None:
    """Serve the source until standard input ends."""
    _Handler.directory = Path(directory)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


class Lake:
    """The source as a process, with random files."""

    def __init__(self, directory: Path, *, files: int, size: int) -> None:
        directory.mkdir()
        self.digests: dict[str, str] = {}
        self.size = size
        for number in range(files):
            content = os.urandom(size)
            (directory / f"f{number:04}").write_bytes(content)
            self.digests[f"f{number:04}"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._directory = directory

    def __enter__(self) -> Self:
        command = [sys.executable, __file__, "--serve", str(self._directory)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def bytes(self) -> int:
        return self.size * len(self.digests)

    @property
    def sent(self) -> int:
        with request.urlopen(f"http://127.0.0.1:{self.port}/-/counts") as response:
            return int(json.load(response)["sent"])

    @property
    def source(self) -> data_pond.PondSource:
        return data_pond.PondSource(
            name="lake",
            uri=f"http://127.0.0.1:{self.port}/",
            allow_addresses=(f"127.0.0.1:{self.port}",),
        )

    @property
    def wanted(self) -> data_pond.SnapshotSource:
        return data_pond.SnapshotSource(source="lake", paths=tuple(self.digests))

    @property
    def manifest(self) -> manifest.Manifest:
        return manifest.Manifest(
            manifest.File(path=path, size=self.size, mode=manifest.PLAIN, digest=digest)
            for path, digest in self.digests.items()
        )


def plain_copy(lake: Lake, directory: Path) -> float:
    """Return the seconds for copying all files, each checked, synced and renamed: the floor."""
    directory.mkdir()
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", lake.port)
    for path, digest in lake.digests.items():
        connection.request("GET", f"/{path}")
        response, made = connection.getresponse(), hashlib.sha256()
        with (directory / f".{path}").open("wb", buffering=0) as file:
            while piece := response.read(PIECE_BYTES):
                made.update(piece)
                file.write(piece)
            os.fsync(file.fileno())
        assert f"sha256:{made.hexdigest()}" == digest
        (directory / f".{path}").rename(directory / path)
    connection.close()
    return time.perf_counter() - began


def snapshot(lake: Lake, digest: str) -> model.WantedSnapshot:
    return model.WantedSnapshot(name="data", digest=digest, source=lake.wanted)


async def _live(home: pond_manager.PondManager, *nodes: str) -> None:
    await home.until(
        lambda: set(nodes) <= home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND)
    )


async def prefetch(directory: Path, lake: Lake, *, repeat: int) -> Iterator[Figure]:
    """Measure from the request to the tree of the run, on an idle agent, alternating with the
    floor.
    """
    agents, floors, peaks = [], [], []
    made = lake.manifest
    async with pond_manager.PondManager(directory / "home") as home:
        home.declare(lake.source)
        for number in range(repeat):
            floors.append(plain_copy(lake, directory / f"copy-{number}"))
            node = f"node-{number}"
            await home.start(node)
            await _live(home, node)
            home.ledger.put_manifest(pond_manager.NAMESPACE, pond_manager.POND, made)
            began = time.perf_counter()
            home.want(f"run-{number}", snapshot(lake, made.digest), nodes=[node])
            await home.until_ready(f"run-{number}", node)
            agents.append(time.perf_counter() - began)
            status = Path(f"/proc/{home.agents[node].pid}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            peaks.append(int(peak.split()[1]) / 1024)
            await home.kill(node)
    mib = lake.bytes / (1 << 20)
    what = f"prefetch of {len(lake.digests):,} files of {lake.size / 1024:,.0f} KiB"
    shown = {"peak MiB of the agent": round(max(peaks))}
    return iter(
        [
            Figure(
                what,
                mib / statistics.median(agents),
                "MiB/s",
                mib / statistics.median(floors),
                Gate(at_least=0.8, ratio=True),
                more=shown,
            )
        ]
    )


async def three_nodes(directory: Path, lake: Lake) -> Iterator[Figure]:
    """Measure three agents: pin and fetch, then the same once more, then another division."""
    async with pond_manager.PondManager(directory / "home") as home:
        home.declare(lake.source)
        await home.start(*NODES)
        await _live(home, *NODES)
        began = time.perf_counter()
        pin = await home.pin(lake.wanted, "first")
        home.want("run-1", snapshot(lake, pin.digest))
        await home.until_ready("run-1", *NODES)
        first_s, sent = time.perf_counter() - began, lake.sent
        moved = _moved(home)

        began = time.perf_counter()
        again = await home.pin(lake.wanted, "second")
        home.want("run-2", snapshot(lake, again.digest))
        await home.until_ready("run-2", *NODES)
        second_s = time.perf_counter() - began
        second = lake.sent - sent + _moved(home) - moved

        assert pin.manifest is not None
        scheme, moved = shards.Scheme(by="range"), _moved(home)
        began = time.perf_counter()
        few = shards.plan(pin.manifest, scheme, 50)
        many = shards.plan(pin.manifest, scheme, 500)
        home.want("run-3", snapshot(lake, pin.digest))
        await home.until_ready("run-3", *NODES)
        reshard_s = time.perf_counter() - began
        assert {p for s in few for p in s.paths} == {p for s in many for p in s.paths}
        resharded = lake.sent - sent + _moved(home) - moved
    times = {"first ms": round(first_s * 1000), "second ms": round(second_s * 1000)}
    return iter(
        [
            Figure(
                "bytes that the source sends for three nodes, by the snapshot",
                sent / lake.bytes,
                "",
                gate=Gate(at_most=1),
                more=times,
            ),
            Figure("bytes fetched by a second run", second, "B", gate=Gate(at_most=0)),
            Figure(
                "bytes moved by shards 50 → 500",
                resharded,
                "B",
                gate=Gate(at_most=0),
                more={"ms": round(reshard_s * 1000)},
            ),
        ]
    )


def _moved(home: pond_manager.PondManager) -> int:
    """Return the bytes that agents have fetched, from peers and source."""
    counted = [home.counters(node) for node in NODES]
    return sum(one.fetched_source + one.fetched_peers for one in counted)


def shapes(directory: Path | None, *, repeat: int, mib: int, small: int) -> dict[str, frame.Shape]:
    """Return all measurements by name."""

    def measured(kind: str) -> Iterator[Figure]:
        files, size = FILES, (mib << 20) // FILES
        if kind == "small":
            files, size = small, SMALL_BYTES
        with tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=directory) as scratch:
            top = Path(scratch)
            with Lake(top / "lake", files=files, size=size) as lake:
                if kind == "nodes":
                    yield from asyncio.run(three_nodes(top, lake))
                else:
                    yield from asyncio.run(prefetch(top, lake, repeat=repeat))

    return {kind: lambda kind=kind: measured(kind) for kind in ("prefetch", "small", "nodes")}


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return 0
    parser = frame.parser(__doc__, name="pond")
    parser.add_argument("--mib", type=int, default=200, help="size of the snapshot")
    parser.add_argument("--short", action="store_true", help="once each, in less than a minute")
    options = parser.parse_args()
    if options.short:
        options.repeat, options.wait = 1, 0
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    small = SMALL_FILES // 4 if options.short else SMALL_FILES
    made = shapes(options.directory, repeat=options.repeat, mib=options.mib, small=small)
    return frame.run(made, options)


if __name__ == "__main__":
    sys.exit(main())
