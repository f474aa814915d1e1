"""The shapes on RQ: two workers that fork for each job, on their own Redis."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
import redis_server
import rq
import shapes

PORT = int(os.environ.setdefault("KILN_PEER_PORT", str(redis_server.free_port())))


def echo(number: int, padding: str) -> int:
    return number


def pause(seconds: float) -> None:
    time.sleep(seconds)


class Rq:
    """Polls for the result of a job: RQ pushes none."""

    version = rq.VERSION

    def start(self) -> None:
        self._redis = redis_server.Redis(PORT)
        self._queue = rq.Queue("peer", connection=redis.Redis(port=PORT))
        worker = [sys.executable, "-m", "rq.cli", "worker", "--quiet", "peer"]
        self._workers = [
            subprocess.Popen(
                [*worker, "-u", f"redis://127.0.0.1:{PORT}"],
                cwd=Path(__file__).parent,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]

    def stop(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._redis.stop()

    def call(self, number: int, padding: str) -> int:
        return self._result(self._queue.enqueue("on_rq.echo", number, padding))

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        jobs = [self._queue.enqueue("on_rq.echo", number, padding) for number, padding in calls]
        return [self._result(job) for job in jobs]

    def busy(self, seconds: float) -> None:
        for job in [self._queue.enqueue("on_rq.pause", seconds) for _ in range(2)]:
            self._result(job)

    def chain(self, length: int) -> None:
        raise NotImplementedError

    def descend(self, depth: int) -> int:
        raise NotImplementedError

    def _result(self, job: Any) -> int:
        while not (done := job.latest_result(timeout=60)):
            pass
        return done.return_value


if __name__ == "__main__":
    shapes.main(Rq())
