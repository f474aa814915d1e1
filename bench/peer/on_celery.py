"""The shapes on Celery: two prefork workers, broker and results on its own Redis."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import celery
import redis_server
import shapes

PORT = int(os.environ.setdefault("KILN_PEER_PORT", str(redis_server.free_port())))
URL = f"redis://127.0.0.1:{PORT}"
app = celery.Celery("on_celery", broker=f"{URL}/0", backend=f"{URL}/1")
app.conf.update(worker_prefetch_multiplier=64)


@app.task(name="echo")
def echo(number: int, padding: str) -> int:
    return number


@app.task(name="pause")
def pause(seconds: float) -> None:
    time.sleep(seconds)


class Celery:
    """Celery tasks may not wait for tasks, and a chain is planned before it starts: no such
    shapes.
    """

    version = celery.__version__

    def start(self) -> None:
        self._redis = redis_server.Redis(PORT)
        options = ["-P", "prefork", "-c", "2", "-l", "ERROR", "--without-gossip"]
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "on_celery", "worker", *options],
            cwd=Path(__file__).parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        self._worker.terminate()
        self._worker.wait()
        self._redis.stop()

    def call(self, number: int, padding: str) -> int:
        return echo.delay(number, padding).get(timeout=60)

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        results = [echo.delay(number, padding) for number, padding in calls]
        return [result.get(timeout=300) for result in results]

    def busy(self, seconds: float) -> None:
        for result in [pause.delay(seconds), pause.delay(seconds)]:
            result.get(timeout=60)

    def chain(self, length: int) -> None:
        raise NotImplementedError

    def descend(self, depth: int) -> int:
        raise NotImplementedError


if __name__ == "__main__":
    shapes.main(Celery())
