"""A Python program outside the cluster whose connection to its tasks breaks; the program goes on.

Its link passes the API server's proxy and the manager: each is down for a while during the run.
Every result arrives, and the notes of the calls show that no attempt's code ran twice.
"""

import collections
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kube_cluster, kube_driver, kube_load, kube_manager, process_search

pytestmark = pytest.mark.timeout(180)

COUNT = 100


@pytest.fixture(scope="module")
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """Run a manager as a Pod on the node with a kubelet."""
    with kube_manager.installed(kube, kube_manager.on_real_node(real_node)) as made:
        yield made


class Program:
    """support/kube_driver.py as a process, with tasks in the namespace of `load`."""

    def __init__(
        self, load: kube_load.Load, manager: kube_manager.Manager, directory: Path
    ) -> None:
        self._load = load
        self._manager = manager
        kube = manager.kube
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_bytes(kube.kubeconfig.read_bytes())
        here = f"--namespace={load.namespace}"
        kube.kubectl("config", f"--kubeconfig={kubeconfig}", "set-context", "--current", here)
        argv = [sys.executable, str(kube_driver.__file__), kube_load.CLUSTER, str(COUNT)]
        self.process = subprocess.Popen(
            argv,
            env={**kube.environment, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
        )
        assert self.process.stdout is not None
        output = self.process.stdout.readline()
        if output != "begun\n":
            raise AssertionError(f"{output}{self.process.communicate(timeout=5)}")
        load.wait_running(4)

    def check(self) -> None:
        """Check that it ends well and that each call ran."""
        try:
            output, errors = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, errors = self.process.communicate()
            ran = len(self._load.notes())
            described = self._manager.described()
            raise AssertionError(
                f"no end; {ran} notes of {COUNT}\n{output}{errors}\n{described}"
            ) from None
        assert self.process.returncode == 0, f"{output}{errors}"
        assert output.split() == [str(sum(n * n for n in range(COUNT)))]
        counts = collections.Counter(self._load.notes())
        assert {line for line, count in counts.items() if count > 1} == set()
        assert len({line.split()[0] for line in counts}) == COUNT


@pytest.fixture
def program(manager: kube_manager.Manager, namespace: str, tmp_path: Path) -> Iterator[Program]:
    """Start such a program and wait until its first calls run."""
    load = kube_load.Load(manager, namespace)
    load.prepare()
    manager.allow_drivers(namespace)
    made = Program(load, manager, tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def test_driver_survives_an_absent_api_server(kube: kube_cluster.Kube, program: Program) -> None:
    kube.kill_part("kube-apiserver")
    try:
        assert not threading.Event().wait(15)
    finally:
        kube.start_part("kube-apiserver")
    program.check()


def test_driver_survives_a_killed_manager(program: Program) -> None:
    os.kill(process_search.pid_of_command("kiln", "manager"), signal.SIGKILL)
    program.check()


def test_driver_survives_a_deleted_worker(
    kube: kube_cluster.Kube, program: Program, namespace: str
) -> None:
    kube.kubectl("delete", f"--namespace={namespace}", "pod", f"{kube_load.CLUSTER}-0")
    program.check()
