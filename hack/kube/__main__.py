"""`python -m hack.kube build|up|down`: the real Kubernetes by hand."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from hack.kube import binary, cluster


def main() -> int:
    """See --help."""
    parser = argparse.ArgumentParser(prog="python -m hack.kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build it unless that has been done; print where it is")
    up = commands.add_parser("up", help="run a control plane in the foreground until Ctrl-C")
    up.add_argument("--folder", type=Path, help="state; default a new one below /tmp")
    up.add_argument("--crd", type=Path, action="append", default=[], help="apply this first")
    given = parser.parse_args()
    try:
        found = binary.ensure()
    except binary.NotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    if given.command == "build":
        print(found)
        return 0
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kube-"))
    running = cluster.Cluster(cluster.Settings(folder=folder, crds=given.crd))
    try:
        running.start()
        print(f"export KUBECONFIG={running.kubeconfig}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        running.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
