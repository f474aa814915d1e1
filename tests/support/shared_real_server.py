"""Pytest plugin of `--server real`: one real control plane for all processes of a run.

The main pytest process starts it before its xdist workers and removes it at the end; workers find
it by $KILN_KUBE_DIRECTORY. If that is set already, the control plane there is used.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hack.kube import cluster, control

_made: list[tuple[cluster.Cluster, control.Server]] = []


def pytest_configure(config: pytest.Config) -> None:
    if "KILN_KUBE_DIRECTORY" in os.environ or hasattr(config, "workerinput"):
        return
    found = cluster.Cluster(cluster.Settings(directory=Path(tempfile.mkdtemp(prefix="kube-"))))
    try:
        found.start()
    except BaseException:
        found.remove()
        raise
    _made.append((found, control.Server(found.directory, found)))
    os.environ["KILN_KUBE_DIRECTORY"] = str(found.directory)


def pytest_unconfigure() -> None:
    while _made:
        made, server = _made.pop()
        made.remove()
        server.close()
        os.environ.pop("KILN_KUBE_DIRECTORY")
