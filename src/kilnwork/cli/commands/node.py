"""`kiln node`: this machine as a node of a cluster, in the foreground.

Only the process around it: options, signals, what is printed. The node is `controlplane.node`.
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
from kilnwork.controlplane.node import registration, removal, virtual_node
from kilnwork.kit import clock, paths
from kilnwork.kube import config

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint(text: str) -> registration.NodeTaint:
    """KEY=VALUE:EFFECT or KEY:EFFECT, as kubectl takes it."""
    left, _, effect = text.rpartition(":")
    key, _, content = left.partition("=")
    if not key or effect not in _EFFECTS:
        known = ", ".join(_EFFECTS)
        raise ValueError(f"{text!r} is no taint: write KEY=VALUE:EFFECT with one of {known}")
    return registration.NodeTaint(key, content, effect)


TAINT = options.Parsed("taint", _taint)


@click.command()
@click.option("--name", metavar="NAME", help="Of the Node; default the host's name.")
@click.option(
    "--address",
    metavar="IP",
    help="Where the API server reaches this node; default the address that faces it.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port for logs and exec; default a free one.",
)
@click.option(
    "--data",
    type=directory_type.Directory(),
    help="Data directory; default one for each node's name.",
)
@click.option(
    "--workdir",
    type=directory_type.Directory(exists=True),
    help="Where containers run that name no directory; default the current directory.",
)
@click.option(
    "--taint",
    "taints",
    multiple=True,
    type=TAINT,
    help="KEY=VALUE:EFFECT; may be repeated. "
    "Default virtual-kubelet.io/provider=kilnwork:NoSchedule.",
)
@click.option("--no-taint", is_flag=True, help="Take any Pod that is scheduled here.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Of the Node.")
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CA of the client certificates that may ask for logs and exec.",
)
@click.option(
    "--request-certificate",
    is_flag=True,
    help="Have the cluster sign the certificate for logs and exec; a user must approve it.",
)
@click.option(
    "--keep-pods",
    is_flag=True,
    help="Leave Pods running when this ends; the next start within a minute takes them over.",
)
@click.option(
    "--remove", is_flag=True, help="End the node's Pods and delete it, wherever it runs; then end."
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
    """Attach this machine to a cluster as a node that runs Pods as processes, in the foreground.

    Images are labels on such a node: programs come from this machine, so only Pods that tolerate
    its taint are scheduled here. Ctrl-C ends the node's Pods and leaves the Node object NotReady.
    """
    target = options.current()
    kube = config.load(
        Path(target.kubeconfig) if target.kubeconfig else None, context=target.context
    )
    chosen = name or names.dns_label(socket.gethostname())
    settings = virtual_node.VirtualNodeSettings(
        name=chosen,
        directory=(data or paths.data_dir() / "nodes" / chosen).absolute(),
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
        await removal.remove(kube, settings, say=waiting.say, time=clock.SystemClock())
    click.echo(f"node {settings.name} is removed")
    return exits.Exit.OK


def read_labels(given: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE, each; a usage error for anything else."""
    for label in given:
        if "=" not in label or label.startswith("="):
            raise click.BadParameter(f"{label!r} is no label: write KEY=VALUE")
    return dict(label.split("=", 1) for label in given)


def facing(server: str) -> str:
    """Our address on the way to the API server; no packet is sent."""
    url = parse.urlsplit(server)
    host, port = url.hostname or "127.0.0.1", url.port or 443
    try:
        family, kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
