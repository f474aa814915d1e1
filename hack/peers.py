"""Builds Argo Workflows to run our tasks beside it, and prints where it is: `python -m hack.peers`.

For `make test-peers`. Nothing of it is imported or packaged. The source is that of one commit, from
$KILN_PEERS (a directory with `argo-workflows.tar.xz`, or with the tree `argo-workflows`), else from
../shared/peers beside the checkout, else from GitHub. The result is stored outside the checkout.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hack.image import oci, tree

COMMIT = "f016ad8"
"""Of https://github.com/argoproj/argo-workflows, 21 August 2026 (v4.1.2): the recorded statuses in
tests/support/argo_traces.json are of this one."""

IMAGE = f"localhost/argoexec:{COMMIT}"
_PROGRAMS = ("workflow-controller", "argoexec")
_CRDS = Path("manifests/base/crds/minimal")
_SOURCE = "argo-workflows"
_SHARED = Path(__file__).parents[2] / "shared" / "peers"
_UNFIT = 75
"""As EX_TEMPFAIL of sysexits(3): not this machine, not now; `make test-peers` skips on it."""


class Unfit(Exception):
    """It cannot be built here; the text says what would help."""


def directory() -> Path:
    """Return where the programs, the definitions of kinds (`crds`) and the image are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kilnwork" / "peers" / f"{_SOURCE}-{COMMIT}"


def ensure() -> Path:
    """Return `directory()` with everything in it, built first if needed. Raises Unfit."""
    wanted = directory()
    wanted.mkdir(parents=True, exist_ok=True)
    with (wanted / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((wanted / name).is_file() for name in _PROGRAMS) or not _crds(wanted):
            with tempfile.TemporaryDirectory(prefix="kiln-peers-") as scratch:
                _build(_source(Path(scratch)), wanted)
        if not image(wanted).is_file():
            _write_image(wanted)
    return wanted


def image(found: Path) -> Path:
    """Return the file of the image of argoexec, for `hack.kube run --image`."""
    return found / "argoexec.tar"


def _crds(found: Path) -> list[Path]:
    return sorted((found / "crds").glob("argoproj.io_*.yaml"))


def _source(scratch: Path) -> Path:
    """Return a tree of the source, which may be changed. Raises Unfit."""
    given = os.environ.get("KILN_PEERS")
    for base in [Path(given)] if given else [_SHARED]:
        archive = base / f"{_SOURCE}.tar.xz"
        if archive.is_file():
            _run(["tar", "-xJf", str(archive), "-C", str(scratch)])
            return scratch / _SOURCE
        if (base / _SOURCE / "go.mod").is_file():
            shutil.copytree(base / _SOURCE, scratch / _SOURCE)
            return scratch / _SOURCE
    if given:
        raise Unfit(f"KILN_PEERS={given} has neither {_SOURCE}.tar.xz nor {_SOURCE}/go.mod")
    if shutil.which("git") is None:
        raise Unfit("git is missing: install it, or set KILN_PEERS to a directory with the source")
    url = f"https://github.com/argoproj/{_SOURCE}"
    _run(["git", "clone", "--quiet", "--filter=blob:none", "--no-checkout", url, _SOURCE], scratch)
    _run(["git", "checkout", "--quiet", COMMIT], scratch / _SOURCE)
    return scratch / _SOURCE


def _build(source: Path, wanted: Path) -> None:
    if shutil.which("go") is None:
        raise Unfit(
            "Argo Workflows is built with Go, which is not on PATH: https://go.dev/doc/install"
        )
    print(f"building Argo Workflows {COMMIT} into {wanted} (10 to 20 minutes)", file=sys.stderr)
    environment = {**os.environ, "CGO_ENABLED": "0"}
    for name in _PROGRAMS:
        new = wanted / f"{name}.new"
        argv = ["go", "build", "-mod=mod", "-buildvcs=false", "-ldflags=-s -w", "-o", str(new)]
        _run([*argv, f"./cmd/{name}"], source, environment)
        new.rename(wanted / name)
    shutil.copytree(source / _CRDS, wanted / "crds", dirs_exist_ok=True)


def _write_image(found: Path) -> None:
    """Write an image with argoexec and nothing else."""
    with tempfile.TemporaryDirectory(prefix="kiln-peers-") as scratch:
        made = tree.Tree(Path(scratch) / "root")
        made.base()
        made.program(found / "argoexec", "/bin/argoexec")
        layer = oci.pack(made.root, Path(scratch) / "layer.tar")
        settings = oci.Settings(entrypoint=("argoexec",), environment={"PATH": "/bin"})
        new = image(found).with_suffix(".new")
        oci.write(new, name=IMAGE, layers=[layer], settings=settings)
        new.rename(image(found))


def _run(
    argv: list[str], where: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    done = subprocess.run(argv, cwd=where, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        text = f"{' '.join(argv[:2])} ended with {done.returncode}: see its output above"
        raise Unfit(f"{text}; KILN_PEERS may name a directory with the source")


def main() -> int:
    try:
        print(ensure())
    except Unfit as error:
        print(error, file=sys.stderr)
        return _UNFIT
    return 0


if __name__ == "__main__":
    sys.exit(main())
