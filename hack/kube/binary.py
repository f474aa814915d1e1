"""The program `kube`: built once for each version of the Go files here, stored outside the
checkout.

It contains etcd, the control plane, the kubelet, kube-proxy and kubectl; see main.go. A build takes
some six minutes on two cores and 3 GB of Go's own cache, which may be removed afterwards.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
_VERSIONED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class NotBuilt(Exception):
    """The program is missing and cannot be built; the text says what is missing."""


def version() -> str:
    """Return the version of Kubernetes in go.mod, such as v1.33.13."""
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (HERE / "go.mod").read_text())
    if found is None:
        raise NotBuilt(f"{HERE / 'go.mod'} names no k8s.io/kubernetes")
    return found[1]


def directory() -> Path:
    """Return where the program of these sources is stored, with a link for each component."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in SOURCES))
    return base / "kilnwork" / "kube" / f"{version()}-{digest.hexdigest()[:12]}"


def built() -> Path | None:
    """Return `directory` if it has the program, else None."""
    found = directory()
    return found if (found / "kube").is_file() else None


def ensure(*, say: bool = True) -> Path:
    """Return the directory with the program and the links, building it first if needed. Raises
    NotBuilt.

    Waits for another process that builds at the same time.
    """
    there = built()
    if there is not None:
        return there
    if shutil.which("go") is None:
        raise NotBuilt(
            f"Kubernetes {version()} is built with Go, which is not on PATH: install Go 1.24 or "
            "newer (https://go.dev/doc/install), then run this again"
        )
    wanted = directory()
    wanted.mkdir(parents=True, exist_ok=True)
    with (wanted / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built() is None:
            _build(wanted, say=say)
    return wanted


def pause() -> Path:
    """Return the program of pause/main.go, built if missing, which takes an instant. Raises
    NotBuilt.
    """
    source = HERE / "pause" / "main.go"
    wanted = directory().with_name(f"pause-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}")
    if not wanted.is_file():
        if shutil.which("go") is None:
            raise NotBuilt("the program `pause` is built with Go, which is not on PATH")
        wanted.parent.mkdir(parents=True, exist_ok=True)
        new = wanted.with_suffix(f".{os.getpid()}")
        argv = ["go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", str(new)]
        done = subprocess.run(
            [*argv, source.name],
            cwd=source.parent,
            env={**os.environ, "CGO_ENABLED": "0"},
            check=False,
        )
        if done.returncode:
            raise NotBuilt(f"go build of pause ended with {done.returncode}: see its output above")
        new.rename(wanted)
    return wanted


def _build(wanted: Path, *, say: bool) -> None:
    began = time.monotonic()
    if say:
        print(f"building Kubernetes {version()} into {wanted} (some minutes)", file=sys.stderr)
    major, minor, _ = version().removeprefix("v").split(".")
    facts = {
        "gitVersion": version(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    flags = ["-s", "-w"]
    for package in _VERSIONED:
        flags += [f"-X {package}.{name}={value}" for name, value in facts.items()]
    new = wanted / "kube.new"
    argv = ["go", "build", "-buildvcs=false", "-trimpath", "-ldflags", " ".join(flags)]
    done = subprocess.run([*argv, "-o", str(new), "."], cwd=HERE, check=False)
    if done.returncode:
        raise NotBuilt(f"go build ended with {done.returncode}: see its output above")
    for name in COMPONENTS:
        link = wanted / name
        link.unlink(missing_ok=True)
        link.symlink_to("kube")
    new.rename(wanted / "kube")
    if say:
        print(f"built in {time.monotonic() - began:.0f} s", file=sys.stderr)
