"""`kiln node`: attach this machine to a cluster as a node, in the foreground.

Contains the options, signal handling and printed messages; the node is `controlplane.node`.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from signal import SIGTERM
from urllib import parse

import click
import uvloop

from kilnwork.api import names
from kilnwork.cli import directory_type, exits, foreground_server, options, wait_notice
from kilnwork.controlplane.node import node_removal, registration, virtual_node
from kilnwork.kit import clock, data_directories
from kilnwork.kube import config

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint(text: str) -> registration.NodeTaint:
    """Parse KEY=VALUE:EFFECT or KEY:EFFECT, the forms in which kubectl writes a taint."""
    left, _, effect = text.rpartition(":")
    key, _, content = left.partition("=")
    if not key or effect not in _EFFECTS:
        known = ", ".join(_EFFECTS)
        raise ValueError(f"{text!r} is not a taint: write KEY=VALUE:EFFECT with one of {known}")
    return registration.NodeTaint(key, content, effect)


TAINT = options.Parsed("taint", _taint)


@click.command()
@click.option("--name", metavar="NAME", help="Name of the Node; default: the host name.")
@click.option(
    "--address",
    metavar="IP",
    help="Address at which the API server reaches this node; default: the local address that"
    " faces the API server.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port for logs and exec; default: a free port.",
)
@click.option(
    "--data",
    type=directory_type.Directory(),
    help="Data directory; default: one per node name.",
)
@click.option(
    "--workdir",
    type=directory_type.Directory(exists=True),
    help="Working directory of containers that set none; default: the current directory.",
)
@click.option(
    "--taint",
    "taints",
    multiple=True,
    type=TAINT,
    metavar="KEY=VALUE:EFFECT",
    help="Taint of the Node; repeatable. Default: virtual-kubelet.io/provider=kilnwork:NoSchedule.",
)
@click.option(
    "--no-taint", is_flag=True, help="Set no taint: accept all Pods that are scheduled here."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the Node; repeatable."
)
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CA of the client certificates that may request logs and exec.",
)
@click.option(
    "--request-certificate",
    is_flag=True,
    help="Request a certificate for logs and exec from the cluster; a user must approve it.",
)
@click.option(
    "--keep-pods",
    is_flag=True,
    help="Leave Pods running at exit; the next start within a minute adopts them.",
)
@click.option(
    "--remove",
    is_flag=True,
    help="Stop the node's Pods, delete the Node object, wherever the node runs, and exit.",
)
@foreground_server.logged
@options.target
def command(  # noqa: PLR0913 - one for each option
    *,
    name: str | None,
    address: str | None,
    port: int,
    data: Path | None,
    workdir: Path | None,
    taints: tuple[registration.NodeTaint, ...],
    no_taint: bool,
    labels: tuple[str, ...],
    client_ca_file: Path | None,
    request_certificate: bool,
    keep_pods: bool,
    remove: bool,
) -> int:
    """Attach this machine to a Kubernetes cluster as a node that runs Pods as processes.

    \b
    kiln node --name laptop --address 10.0.0.5
    kiln node --name laptop --remove

    Runs in the foreground. Container images are not pulled: programs come from this machine, so the
    node has a taint, and only Pods that tolerate it are scheduled here. Ctrl-C stops the node's
    Pods and leaves the Node object NotReady.
    """
    target = options.current()
    kube = config.load(
        Path(target.kubeconfig) if target.kubeconfig else None, context=target.context
    )
    chosen = name or names.dns_label(socket.gethostname())
    settings = virtual_node.VirtualNodeSettings(
        name=chosen,
        directory=(data or data_directories.data_dir() / "nodes" / chosen).absolute(),
        workdir=(workdir or Path.cwd()).absolute(),
        address=address or facing(kube.server),
        port=port,
        taints=() if no_taint else taints or (virtual_node.PROVIDER,),
        labels=read_labels(labels),
        client_ca=client_ca_file,
        keeps_pods=keep_pods,
        asks_certificate=request_certificate,
    )

    if remove:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_remove(kube, settings))
    return foreground_server.serve(lambda _: _make(kube, settings), ready=_say_ready)


def _make(
    kube: config.Config, settings: virtual_node.VirtualNodeSettings
) -> virtual_node.VirtualNode:
    return virtual_node.VirtualNode(
        kube, settings, on_removed=lambda: os.kill(os.getpid(), SIGTERM)
    )


def _say_ready(node: virtual_node.VirtualNode) -> None:
    click.echo(
        f"node {node.settings.name} is ready, port {node.port} (data: {node.settings.directory})"
    )
    sys.stdout.flush()


async def _remove(kube: config.Config, settings: virtual_node.VirtualNodeSettings) -> int:
    async with wait_notice.waiting(f"removing node {settings.name}") as waiting:
        await node_removal.remove(kube, settings, say=waiting.say, time=clock.SystemClock())
    click.echo(f"node {settings.name} is removed")
    return exits.Exit.OK


def read_labels(given: tuple[str, ...]) -> dict[str, str]:
    """Parse KEY=VALUE words as labels.

    Raises a usage error for a word of another form.
    """
    for label in given:
        if "=" not in label or label.startswith("="):
            raise click.BadParameter(f"{label!r} is not a label: write KEY=VALUE")
    return dict(label.split("=", 1) for label in given)


def facing(server: str) -> str:
    """Return the local address on the route to the API server; sends no packet."""
    url = parse.urlsplit(server)
    host, port = url.hostname or "127.0.0.1", url.port or 443
    try:
        family, kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
