"""The shapes on kilnwork: `kiln.start()`, durable with a new directory in DIR with `--durable
DIR`.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import shapes

import kilnwork as kiln

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import work


class Kilnwork:
    """Two slots on this machine."""

    version = kiln.__version__

    def start(self) -> None:
        directory = None
        if "--durable" in sys.argv:
            directory = tempfile.mkdtemp(dir=sys.argv[sys.argv.index("--durable") + 1])
        self._session = kiln.start(directory, slots=2)

    def stop(self) -> None:
        self._session.close()

    def call(self, number: int, padding: str) -> int:
        return work.echo.submit(number, padding).result()

    def burst(self, calls: Sequence[tuple[int, str]]) -> list[int]:
        futures = [work.echo.submit(number, padding) for number, padding in calls]
        return [future.result() for future in futures]

    def busy(self, seconds: float) -> None:
        kiln.gather(work.pause.submit(seconds), work.pause.submit(seconds)).result()

    def chain(self, length: int) -> None:
        work.hop.submit(length).result()

    def descend(self, depth: int) -> int:
        return work.descend.submit(depth).result()


if __name__ == "__main__":
    shapes.main(Kilnwork())
