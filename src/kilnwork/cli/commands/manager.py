"""`kiln manager`: run the manager of a Kubernetes cluster in the foreground.

Contains the options and the printed messages. `foreground_server` owns the process, and
`wiring.in_cluster_server` starts and stops the parts in order.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import click

from kilnwork import version
from kilnwork.api import manager_access
from kilnwork.cli import (
    directory_type,
    foreground_server,
    jobs_api_limits,
    manager_options,
    options,
    retention_options,
    session,
)
from kilnwork.cli.installation import rights
from kilnwork.cli.wiring import in_cluster_server
from kilnwork.kit import mount_path_resolution

_DATA = Path("/var/lib/kilnwork")


@click.command()
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig file; default: $KUBECONFIG, then the Pod's service account.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
@click.option(
    "-n",
    "--namespace",
    metavar="NS",
    default=manager_access.NAMESPACE,
    show_default=True,
    help="Namespace of the manager's Lease and Service.",
)
@click.option(
    "--only-in",
    multiple=True,
    metavar="NS",
    help="Serve only this namespace; repeatable. Default: all.",
)
@click.option(
    "--data",
    type=directory_type.Directory(),
    default=_DATA,
    show_default=True,
    help="Directory of journal, blobs, logs and certificate authority; must outlive the process.",
)
@click.option(
    "--listen",
    type=manager_options.ADDRESS,
    default=f"0.0.0.0:{manager_access.PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on, with TLS; [::]:7443 where Pods have only IPv6.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    type=manager_options.advertised(in_cluster_server.UNIX),
    help="Address to which workers connect; default: the name of the Service. `unix` for"
    " workers on this machine.",
)
@click.option(
    "--worker-image",
    metavar="IMAGE",
    help="Image of worker Pods whose TaskCluster sets none.",
    default=f"localhost/kilnwork:{version.__version__}",
    show_default=True,
)
@click.option(
    "--worker-python",
    metavar="PATH",
    default="python3",
    show_default=True,
    help="Python interpreter in the worker image that has kilnwork installed.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Lead although the Lease names another journal; the tasks of that journal are abandoned.",
)
@manager_options.allowed_kinds(rights.WORKFLOWS)
@manager_options.options
@foreground_server.logged
def command(**given: Any) -> int:
    """Run the manager of a Kubernetes cluster: dispatcher, controllers and REST API.

    `kiln install` prints the manifests that run it in a Pod. To run it by hand, against the cluster
    of a kubeconfig:

    \b
    kiln install --only crds --only rights | kubectl apply -f -
    kiln manager --kubeconfig ~/.kube/config --data ./kilnwork --advertise 10.0.0.5:7443

    One manager leads at a time and holds Lease kilnwork-manager; others wait, and /readyz fails
    until they lead. The Lease names the leader's journal: a manager with another journal never
    leads, and logs the reason, unless it is started with --adopt. SIGTERM or Ctrl-C stops it;
    workers keep their tasks and wait for the next manager.
    """
    settings = _settings(**given)
    return foreground_server.serve(
        lambda fail: in_cluster_server.InClusterServer(settings, on_failure=fail),
        ready=lambda server: _say_ready(server, settings),
    )


def _settings(**given: Any) -> in_cluster_server.InClusterSettings:
    target = options.ServerTarget(kubeconfig=given["kubeconfig"], context=given["context"])
    service = f"{manager_access.SERVICE}.{given['namespace']}.svc:{manager_access.PORT}"
    host, port = given["listen"]
    return in_cluster_server.InClusterSettings(
        data_dir=_mounted(given["data"].absolute()),
        kube=session.load_settings(target),
        namespace=given["namespace"],
        only_in=given["only_in"],
        allowed_kinds=given["allowed_kinds"],
        host=host,
        port=port,
        advertise=given["advertise"] or service,
        worker_image=given["worker_image"],
        worker_command=(given["worker_python"], "-m", "kilnwork.worker"),
        machine=socket.gethostname(),
        callback_url=given["callback_url"],
        absence_s=given["lease"],
        adopt=given["adopt"],
        ponds=given["ponds"],
        files=jobs_api_limits.chosen(given),
        keep=retention_options.chosen(given),
    )


def _mounted(data: Path) -> Path:
    """Return the path at which a volume of the manager's Pod is mounted.

    On nodes whose containers see the file system of the host, it is below another directory.
    """
    inside = mount_path_resolution.locate(data, os.environ)
    return inside if inside.is_dir() else data


def _say_ready(
    server: in_cluster_server.InClusterServer, settings: in_cluster_server.InClusterSettings
) -> None:
    click.echo(
        f"kiln manager {version.__version__} leads on {settings.kube.server}, "
        f"term {server.term}, port {server.port} (data: {settings.data_dir})"
    )
    sys.stdout.flush()
