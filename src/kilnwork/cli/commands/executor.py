"""`kiln executor http`: a foreground process that sends the HTTP requests of tasks.

Contains the options, the connection to the manager and the printed messages; the executor itself is
in `executors.http`.
"""

import functools
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib import parse

import click

from kilnwork import version
from kilnwork.api import api_resources, meta, names
from kilnwork.api import task as api_task
from kilnwork.cli import foreground_server, options
from kilnwork.executors import manager_lookup
from kilnwork.executors.http import knative_services, service
from kilnwork.kit import clock, egress, ids
from kilnwork.kube import client, config


def _label(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    problem = names.qualified_problem(key) or names.label_value_problem(value)
    if not mark or problem:
        raise ValueError(f"{text!r} is not a label: write KEY=VALUE")
    return key, value


def _allowance(text: str) -> egress.Allowance:
    try:
        return egress.parse_allowance(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not an address: write 127.0.0.1, 10.0.0.0/8 or IP:PORT"
        ) from error


LABELS = options.Parsed("labels", lambda text: dict(map(_label, text.split(",") if text else ())))
ALLOWANCE = options.Parsed("address", _allowance)


@click.command()
@click.argument("executor", type=click.Choice([service.EXECUTOR]))
@click.option(
    "--name",
    metavar="NAME",
    help="Name that tasks show as the place where they ran; default: host name and process id.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Number of concurrent requests; accepted requests (202) whose result is pending do"
    " not count.",
)
@click.option(
    "--labels",
    type=LABELS,
    default="",
    metavar="KEY=VALUE,...",
    help="Labels that task affinity can select, for example the network that this executor"
    " reaches.",
)
@click.option(
    "--allow",
    type=ALLOWANCE,
    multiple=True,
    metavar="ADDRESS",
    help="Address, network or IP:PORT that may be requested although it is loopback,"
    " link-local or the API server; repeatable.",
)
@foreground_server.logged
@options.target
def command(
    *,
    executor: str,
    name: str | None,
    slots: int,
    labels: dict[str, str],
    allow: tuple[egress.Allowance, ...],
) -> int:
    """Run an executor in the foreground that sends the HTTP requests of tasks.

    \b
    kiln executor http --slots 500 --labels zone=dmz

    Executes tasks with `spec.http` or `spec.function`. Start any number of executors, on machines
    that reach the requested services. Ctrl-C gives requests in flight 15 seconds to finish.
    """
    target = options.current()
    load = functools.partial(
        config.load, Path(target.kubeconfig) if target.kubeconfig else None, context=target.context
    )
    settings = service.HttpExecutorSettings(
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        slots=slots,
        labels=labels,
        policy=egress.Policy(allowed=allow, refused=_api_server(load().server)),
        pod_uid=os.environ.get("KILN_POD_UID", ""),
    )
    return foreground_server.serve(
        functools.partial(_Server, settings, load),
        ready=lambda _: _say(f"executor {executor} {settings.name} is ready, {slots} slots"),
    )


class _Server:
    """An HTTP executor with its connections, as a `foreground_server.ForegroundServer`."""

    def __init__(
        self,
        settings: service.HttpExecutorSettings,
        load: Callable[[], config.Config],
        fail: foreground_server.Say,
    ) -> None:
        self._settings = settings
        self._load = load
        self._fail = fail
        self._service: service.HttpService | None = None
        self._kube = client.Client(
            load(), user_agent=f"kiln-executor/{version.__version__}", time=clock.SystemClock()
        )
        self._reader = _Reader(self._kube, inside="KUBERNETES_SERVICE_HOST" in os.environ)

    async def start(self, *, say: foreground_server.Say) -> None:
        say("looking for the manager")
        found = manager_lookup.find_manager(self._load, api_task.executor_queue(service.EXECUTOR))
        await self._kube.__aenter__()
        self._service = service.HttpService(
            self._settings,
            found,
            self._reader,
            time=clock.SystemClock(),
            entropy=ids.system_entropy(),
            on_failure=self._fail,
        )
        await self._service.start(say=say)

    async def stop(self, *, say: foreground_server.Say) -> None:
        if self._service is not None:
            await self._service.stop(say=say)
            await self._reader.close()
            await self._kube.__aexit__(None, None, None)


class _Reader(knative_services.ServicesOfCluster):
    """`service.ApiReader` that reads Secrets and Knative Services from an API server."""

    async def secret(self, namespace: str, name: str) -> meta.JsonObject:
        return await self.kube.get(api_resources.SECRETS, name, namespace)


def _api_server(server: str) -> frozenset[tuple[str, int]]:
    """Return the addresses of the API server and of its plain HTTP port.

    `kiln up` serves plain HTTP on the port next to that of the API server.
    """
    parts = parse.urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = {(parts.hostname or "", port)}
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host:
        found.add((host, int(os.environ.get("KUBERNETES_SERVICE_PORT") or 443)))
    return frozenset(
        (address, number + more)
        for name, number in found
        for address in _addresses(name)
        for more in (0, 1)
    )


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(ipaddress.ip_address(str(one[4][0]).partition("%")[0])) for one in found}


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
