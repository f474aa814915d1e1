"""A server of ours in a subprocess, to kill or stop; base of `up_server` and `kube_cluster`."""

import signal
import subprocess


class ServerProcess:
    """A server process. `process` is None until the first start."""

    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Send SIGKILL; processes that it started live on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, *, timeout_s: float = 25.0) -> int:
        """Send SIGTERM; return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
