"""A Redis server on a free port, without persistence, for the queues that need one."""

import socket
import subprocess
import tempfile
import time


def free_port() -> int:
    """Return a port that no process uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Redis:
    """`redis-server` of PATH; ends with `stop`."""

    def __init__(self, port: int) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kiln-redis.")
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--dir", self._directory.name], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop it and remove its directory."""
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()
