"""A control plane with what a sandbox adds: Services that work, and nodes.

Used by `running`; `control` gives its parts to tests in other processes.
"""

from hack.kube import cluster, services


class Whole:
    """All of it. `start`, then the parts by name."""

    def __init__(self, settings: cluster.Settings) -> None:
        self.cluster = cluster.Cluster(settings)
        self.services = services.Services(self.cluster)

    def start(self) -> None:
        """Ready when this returns. Raises Died or TimeoutError."""
        self.cluster.start()
        self.services.start()

    def remove(self) -> None:
        """Kill everything and remove the folder."""
        self.cluster.remove()

    def start_part(self, name: str) -> None:
        """Ready when this returns."""
        if name in services.PARTS:
            self.services.start_part(name)
        else:
            self.cluster.start_part(name)

    def stop_part(self, name: str) -> None:
        """SIGTERM, and its end."""
        self.cluster.stop_part(name)

    def kill_part(self, name: str) -> None:
        """SIGKILL, and its end."""
        self.cluster.kill_part(name)

    def pause_part(self, name: str) -> None:
        """SIGSTOP."""
        self.cluster.pause_part(name)

    def resume_part(self, name: str) -> None:
        """SIGCONT."""
        self.cluster.resume_part(name)
