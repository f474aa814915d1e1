"""Command line of the real Kubernetes for tests, by hand and in CI: `python -m hack.kube
prepare|build|run|up`.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from hack.image import worker
from hack.kube import binary, cluster, control, machine, node, running, sandbox

_UNFIT = 75
"""As EX_TEMPFAIL of sysexits(3): not this machine, not now; `make test-cluster` skips on it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build it unless that has been done; print where it is")
    commands.add_parser("prepare", help="install and build all that clusters need here; 75: unfit")
    up = commands.add_parser("up", help="run a control plane in the foreground until Ctrl-C")
    up.add_argument("--directory", type=Path, help="state; default a new one below /tmp")
    up.add_argument("--crd", type=Path, action="append", default=[], help="apply this first")
    run = commands.add_parser(
        "run", help="run COMMAND beside a cluster in a network of its own; needs root"
    )
    running.add_arguments(run)
    given = parser.parse_args()
    try:
        if given.command == "prepare":
            machine.prepare()
            return 0
        found = binary.ensure()
        if given.command == "build":
            print(found)
            return 0
        return running.run(given) if given.command == "run" else _up(given)
    except machine.Unfit as error:
        print(error, file=sys.stderr)
        return _UNFIT
    except (binary.NotBuilt, worker.NotBuilt, sandbox.Impossible, node.Missing) as error:
        print(error, file=sys.stderr)
        return 1


def _up(given: argparse.Namespace) -> int:
    directory = given.directory or Path(tempfile.mkdtemp(prefix="kube-"))
    made = cluster.Cluster(cluster.Settings(directory=directory, crds=given.crd))
    server: control.Server | None = None
    try:
        made.start()
        server = control.Server(directory, made)
        print(f"export KUBECONFIG={made.kubeconfig}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        made.remove()
        if server is not None:
            server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
