"""Requirements of clusters on this machine: root, Go, packages of the distribution.

`python -m hack.kube prepare` installs the packages if apt-get exists and the caller is root, and
builds the rest. Used by `make test-cluster`; all other commands only report what is missing.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hack.image import worker
from hack.kube import binary, node, sandbox

_POLICY = Path("/usr/sbin/policy-rc.d")
_FOR_TESTS = {"/usr/sbin/nginx": "nginx"}
"""No cluster needs it: `make test` has a test of requests to it, which is skipped without."""

_PROGRAMS = {**sandbox.NEEDED, **node.NEEDED, "busybox": "busybox-static", **_FOR_TESTS}


class Unfit(Exception):
    """Clusters cannot run here and we cannot change that; the text says what would help."""


def prepare() -> None:
    """Install and build everything that is missing. Raises Unfit, binary.NotBuilt or
    worker.NotBuilt.
    """
    if os.geteuid() != 0:
        raise Unfit("clusters need root, for networks of their own: run this with sudo")
    if binary.built() is None and shutil.which("go") is None:
        raise Unfit(f"Kubernetes {binary.version()} is built with Go: https://go.dev/doc/install")
    packages = missing()
    if packages:
        _install(packages)
    binary.ensure()
    binary.pause()
    worker.build()


def missing() -> list[str]:
    """Return the packages of Debian and Ubuntu whose programs are missing."""
    absent = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    return sorted(absent | node.missing())


def _install(packages: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise Unfit(f"install what your distribution calls {', '.join(packages)}")
    print(f"installing {' '.join(packages)}", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["install", "--yes", "--no-install-recommends", *packages]
    with _no_service_starts():
        for arguments in (install, ["update"], install):  # lists may be absent or old
            done = subprocess.run(
                ["apt-get", "-qq", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                check=False,
            )
            if arguments is install and done.returncode == 0:
                break
    left = missing()
    if left:
        raise Unfit(f"apt-get could not install {' '.join(left)}: see its output above")


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Prevent the packages of containerd and nginx from starting them as services
    (policy-rc.d(8)).
    """
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
