"""Floors for `files.py`: the fastest possible file service of the same shape on this machine.

A web server that sends a constant, and one that writes an upload to disk and syncs it; counting
line ends by the block; one process that computes a file line by line; copying files into one. No
checksums, no records, no other processes to coordinate and nothing to restart: that is the
difference. As a program it is its own server: `file_floors.py DIRECTORY`, which prints its port and
serves until its standard input ends.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import machine

BLOCK_BYTES = 1 << 20


def serve(directory: Path) -> None:
    """Serve GET /jobs/ID and POST /jobs as JSON and PUT /raw to disk, with uvicorn and
    Starlette.
    """
    import uvicorn  # noqa: PLC0415 - only the server's process pays for them
    import uvloop  # noqa: PLC0415
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    async def get(request: Request) -> JSONResponse:
        return JSONResponse({"id": request.path_params["id"], "state": "Succeeded"})

    async def post(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse({"id": "1", "bytes": len(body)}, status_code=201)

    async def raw(request: Request) -> JSONResponse:
        size = lines = 0
        with (directory / "raw").open("wb", buffering=0) as file:
            async for chunk in request.stream():
                size += len(chunk)
                lines += chunk.count(b"\n")
                file.write(chunk)
            os.fdatasync(file.fileno())
        return JSONResponse({"bytes": size, "lines": lines})

    app = Starlette(
        routes=[
            Route("/jobs/{id}", get),
            Route("/jobs", post, methods=["POST"]),
            Route("/raw", raw, methods=["POST"]),
        ]
    )
    # not create_server: only of sockets that name TCP do servers switch Nagle's algorithm off
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, http="httptools", log_level="error", access_log=False)
    server = uvicorn.Server(config)

    async def until_input_ends() -> None:
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True

    async def both() -> None:
        watching = asyncio.create_task(until_input_ends())
        await server.serve(sockets=[listening])
        await watching

    uvloop.run(both())


class Server:
    """The floor's server in a separate process. `port`: on loopback."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise AssertionError("the floor's server did not start")
        self.port = int(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)


def count_lines(path: Path, lines_a_part: int) -> list[int]:
    """Return where parts begin, by counting line ends in blocks."""
    starts, lines, base, wanted = [0], 0, 0, lines_a_part
    buffer = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            found = buffer.count(b"\n", 0, got)
            while lines + found >= wanted:
                starts.append(base + _after(buffer, wanted - lines, got))
                wanted += lines_a_part
            lines += found
            base += got
    return starts


def _after(buffer: bytearray, count: int, end: int) -> int:
    """Return where the line after the first `count` lines begins."""
    low, high = 0, end
    while high - low > 4096:
        middle = (low + high) // 2
        found = buffer.count(b"\n", low, middle)
        if found >= count:
            high = middle
        else:
            count -= found
            low = middle
    at = low - 1
    for _ in range(count):
        at = buffer.find(b"\n", at + 1, high)
    return at + 1


def copied(sources: list[Path], target: Path) -> float:
    """Return the seconds to copy files into one, a block at a time, until it is on disk."""

    def copy() -> None:
        with target.open("wb", buffering=0) as out:
            for source in sources:
                with source.open("rb", buffering=0) as file:
                    while block := file.read(BLOCK_BYTES):
                        out.write(block)
            os.fdatasync(out.fileno())

    return machine.timed(copy)


def computed(source: Path, target: Path) -> float:
    """Return the seconds for one process to compute a file line by line with the same function."""
    argv: list[Any] = [sys.executable, __file__, "--compute", source, target]
    return machine.timed(lambda: subprocess.run(argv, check=True))


def compute(source: Path, target: Path) -> None:
    """Compute each line and write each result as a line, synced at the end."""
    from kilnwork.jobs.work import calculator  # noqa: PLC0415 - only this process pays for it

    calculate = calculator.calculate
    with source.open("rb") as file, target.open("wb", buffering=BLOCK_BYTES) as out:
        for line in file:
            out.write(calculate(line.rstrip(b"\n")) + b"\n")
        out.flush()
        os.fdatasync(out.fileno())


def main() -> None:
    if sys.argv[1] == "--compute":
        compute(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        serve(Path(sys.argv[1]))


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
