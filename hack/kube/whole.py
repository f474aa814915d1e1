"""A control plane with what a sandbox adds: Services that work, and nodes.

Used by `running`; `control` gives its parts to tests in other processes.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from hack.image import oci
from hack.kube import binary, cluster, containerd, node, services, volumes


class Whole:
    """The whole cluster. `start` starts it; parts have names: a component, or NODE/kubelet,
    NODE/containerd.

    `nodes`: number of nodes with a kubelet, each with `images`; their cgroups are below `cgroup`.
    """

    def __init__(
        self, settings: cluster.Settings, *, cgroup: str, nodes: int, images: Sequence[Path]
    ) -> None:
        self.cluster = cluster.Cluster(settings)
        self.services = services.Services(self.cluster)
        self.nodes = {
            made.name: made
            for made in (
                node.Node(self.cluster, index=index, cgroup=cgroup) for index in range(nodes)
            )
        }
        self._images = images

    def start(self) -> None:
        """Start everything and wait until it is ready. Raises Died or TimeoutError."""
        self.cluster.start()
        self.services.start()
        claims = volumes.manifest(self.cluster.directory / "volumes")
        self.cluster.kubectl("create", "-f", "-", stdin=claims)
        if self.nodes:
            images = [_pause_image(self.cluster.directory), *self._images]
            for made in self.nodes.values():
                made.start(images)
        names = json.dumps(list(self.nodes))
        (self.cluster.directory / "nodes.json").write_text(names)

    def remove(self) -> None:
        """Kill everything and remove the directory."""
        self.cluster.remove()

    def start_part(self, name: str) -> None:
        of_node, _, part = name.partition("/")
        if of_node in self.nodes:
            self.nodes[of_node].start_part(part)
        elif name in services.PARTS:
            self.services.start_part(name)
        else:
            self.cluster.start_part(name)

    def stop_part(self, name: str) -> None:
        self.cluster.stop_part(name)

    def kill_part(self, name: str) -> None:
        self.cluster.kill_part(name)

    def pause_part(self, name: str) -> None:
        self.cluster.pause_part(name)

    def resume_part(self, name: str) -> None:
        self.cluster.resume_part(name)


def _pause_image(directory: Path) -> Path:
    root = directory / "pause"
    root.mkdir()
    (root / "pause").write_bytes(binary.pause().read_bytes())
    (root / "pause").chmod(0o755)
    layer = oci.pack(root, directory / "pause-layer.tar")
    out = directory / "pause.tar"
    oci.write(
        out,
        name=containerd.PAUSE,
        layers=[layer],
        settings=oci.Settings(entrypoint=["/pause"], environment={"PATH": "/"}),
    )
    return out
