"""The world of one test around an embedded API server: directory, server and administrator's
client.
"""

import shutil
from typing import Any, Self

from kilnwork.controlplane import cluster
from kilnwork.kube import client
from support import short_paths


class World:
    """A running control plane. The directory is short enough for Unix sockets; with `node_name` a
    node runs too.
    """

    def __init__(self, **settings: Any) -> None:
        self.data = short_paths.directory()
        chosen = cluster.ControlPlaneSettings(
            data_dir=self.data, port=0, workdir=self.data, **settings
        )
        self.plane = cluster.ControlPlane(chosen)
        self.kube: client.Client
        self._has_node = "node_name" in settings

    async def __aenter__(self) -> Self:
        await self.plane.start()
        if self._has_node:
            await self.plane.start_node()
        self.kube = client.Client(self.plane.admin_config(), user_agent="test")
        await self.kube.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kube.__aexit__(None, None, None)
        await self.plane.stop()
        shutil.rmtree(self.data)
