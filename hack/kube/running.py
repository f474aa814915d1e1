"""Runs a cluster in a sandbox, and one command beside it: `python -m hack.kube run`.

The command finds the cluster by KUBECONFIG and KILN_KUBE_DIRECTORY and has its kubectl on PATH. The
cluster ends with the command.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from hack.kube import binary, cluster, control, node, processes, sandbox, whole

DIRECTORY = Path("/run/kube")
"""Within the sandbox, where /run is its own; sockets need short paths."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument("--crd", type=Path, action="append", default=[], help="apply this first")
    parser.add_argument("--node", action="store_true", help="with a real kubelet")
    parser.add_argument("--nodes", type=int, metavar="N", help="with so many of them")
    parser.add_argument(
        "--image", type=Path, action="append", default=[], help="image file for the nodes"
    )
    parser.add_argument(
        "--flag",
        type=_flag,
        action="append",
        default=[],
        metavar="COMPONENT=FLAG",
        help="another flag, such as kube-apiserver=--max-requests-inflight=2",
    )
    parser.add_argument("--logs", type=Path, help="copy the logs of the cluster here at the end")
    parser.add_argument("command_line", nargs="+", metavar="COMMAND")


def run(given: argparse.Namespace) -> int:
    """Return the exit code of the command; 1 if the cluster does not start. Raises Impossible."""
    if _nodes(given):
        node.check()
        binary.pause()
    return sandbox.run(lambda cgroup: _inside(given, cgroup))


def _flag(text: str) -> tuple[str, str]:
    component, equals, flag = text.partition("=")
    if component not in binary.COMPONENTS or not equals:
        raise argparse.ArgumentTypeError(f"{text}: write {'|'.join(binary.COMPONENTS)}=--FLAG=X")
    return component, flag


def _nodes(given: argparse.Namespace) -> int:
    return int(given.nodes or given.node)


def _inside(given: argparse.Namespace, cgroup: str) -> int:
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    extra: dict[str, list[str]] = {}
    for component, flag in given.flag:
        extra.setdefault(component, []).append(flag)
    settings = cluster.Settings(
        directory=DIRECTORY, address=sandbox.ADDRESS, crds=given.crd, extra=extra
    )
    made = whole.Whole(
        settings, cgroup=cgroup, nodes=_nodes(given), images=[p.absolute() for p in given.image]
    )
    server: control.Server | None = None
    try:
        made.start()
        server = control.Server(DIRECTORY, made)
        print(f"cluster ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
        return _command(given.command_line, made.cluster)
    except (processes.Died, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if given.logs is not None and (DIRECTORY / "log").exists():
            shutil.copytree(DIRECTORY / "log", given.logs, dirs_exist_ok=True)
        made.remove()
        if server is not None:
            server.close()


def _command(command_line: list[str], made: cluster.Cluster) -> int:
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {
        "KUBECONFIG": str(made.kubeconfig),
        "KILN_KUBE_DIRECTORY": str(made.directory),
        "PATH": f"{binary.directory()}:{os.environ['PATH']}",
    }
    command = subprocess.Popen(command_line, env=environment)
    while True:
        try:
            code = command.wait()
        except KeyboardInterrupt:  # the command got it too and decides what that means
            continue
        except SystemExit:
            command.terminate()
            command.wait()
            raise
        return code if code >= 0 else 128 - code


def _end(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)
