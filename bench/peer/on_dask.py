"""The shapes on Dask: a LocalCluster of two worker processes with one thread each."""

import time
from collections.abc import Sequence

import distributed
import shapes


def echo(number: int, padding: str) -> int:
    return number


def pause(seconds: float) -> None:
    time.sleep(seconds)


def hop(left: int) -> None:
    if not left:
        distributed.Event("chain").set()
        return
    distributed.fire_and_forget(distributed.get_client().submit(hop, left - 1, pure=False))


def descend(left: int) -> int:
    if not left:
        return 0
    with distributed.worker_client() as client:
        return client.submit(descend, left - 1, pure=False).result() + 1


class Dask:
    """Submits many calls in its own way: one `map`, one `gather`."""

    version = distributed.__version__

    def start(self) -> None:
        self._cluster = distributed.LocalCluster(
            n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None
        )
        self._client = distributed.Client(self._cluster)

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()

    def call(self, number: int, padding: str) -> int:
        return self._client.submit(echo, number, padding, pure=False).result()

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        numbers, paddings = zip(*calls, strict=True)
        return self._client.gather(self._client.map(echo, numbers, paddings, pure=False))

    def busy(self, seconds: float) -> None:
        self._client.gather(self._client.map(pause, [seconds, seconds], pure=False))

    def chain(self, length: int) -> None:
        event = distributed.Event("chain", client=self._client)
        event.clear()
        distributed.fire_and_forget(self._client.submit(hop, length, pure=False))
        event.wait(timeout=300)

    def descend(self, depth: int) -> int:
        return self._client.submit(descend, depth, pure=False).result()


if __name__ == "__main__":
    shapes.main(Dask())
