"""The shapes on Ray: `ray.init(num_cpus=2)` without its dashboard."""

import time
from collections.abc import Sequence
from typing import Any

import ray
import shapes


@ray.remote
def echo(number: int, padding: str) -> int:
    return number


@ray.remote
def pause(seconds: float) -> None:
    time.sleep(seconds)


@ray.remote
def hop(left: int) -> Any:
    return hop.remote(left - 1) if left else 0


@ray.remote
def descend(left: int) -> int:
    return ray.get(descend.remote(left - 1)) + 1 if left else 0


class Ray:
    """Two CPUs on this machine; all results of a burst are fetched by one call."""

    version = ray.__version__

    def start(self) -> None:
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)

    def stop(self) -> None:
        ray.shutdown()

    def call(self, number: int, padding: str) -> int:
        return ray.get(echo.remote(number, padding))

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        return ray.get([echo.remote(number, padding) for number, padding in calls])

    def busy(self, seconds: float) -> None:
        ray.get([pause.remote(seconds), pause.remote(seconds)])

    def chain(self, length: int) -> None:
        reference = hop.remote(length)
        while isinstance(reference, ray.ObjectRef):
            reference = ray.get(reference)

    def descend(self, depth: int) -> int:
        return ray.get(descend.remote(depth))


if __name__ == "__main__":
    shapes.main(Ray())
