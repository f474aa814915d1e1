"""The shapes on Prefect: its own server on SQLite, tasks submitted to two threads."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import shapes

HOME = tempfile.TemporaryDirectory(prefix="kiln-prefect.", ignore_cleanup_errors=True)
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
os.environ.update(
    PREFECT_HOME=HOME.name,
    PREFECT_API_URL=f"http://127.0.0.1:{PORT}/api",
    PREFECT_LOGGING_LEVEL="ERROR",
    PREFECT_LOGGING_TO_API_ENABLED="false",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    DO_NOT_TRACK="1",
)

import prefect  # noqa: E402 - reads its settings when it is imported
from prefect.task_runners import ThreadPoolTaskRunner  # noqa: E402


@prefect.task
def echo(number: int, padding: str) -> int:
    return number


@prefect.task
def pause(seconds: float) -> None:
    time.sleep(seconds)


@prefect.flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def echoes(calls: Sequence[tuple[int, str]]) -> list[int]:
    futures = [echo.submit(number, padding) for number, padding in calls]
    return [future.result() for future in futures]


@prefect.flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def pauses(seconds: float) -> None:
    for future in [pause.submit(seconds), pause.submit(seconds)]:
        future.result()


class Prefect:
    """Each call is a flow of one task, since tasks are submitted from flows."""

    version = prefect.__version__

    def start(self) -> None:
        self._server = subprocess.Popen(
            [Path(sys.executable).parent / "prefect", "server", "start", "--port", str(PORT)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/health", timeout=1)
                return
            except OSError:
                if time.monotonic() > deadline or self._server.poll() is not None:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.1)

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()
        HOME.cleanup()

    def call(self, number: int, padding: str) -> int:
        return echoes([(number, padding)])[0]

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        return echoes(list(calls))

    def busy(self, seconds: float) -> None:
        pauses(seconds)

    def chain(self, length: int) -> None:
        raise NotImplementedError

    def descend(self, depth: int) -> int:
        raise NotImplementedError


if __name__ == "__main__":
    shapes.main(Prefect())
