"""`kiln install`: print the manifests of the manager for a Kubernetes cluster.

Contains the options and their checks; `installation` makes the objects. Talks to no server.
"""

import re
from typing import Any

import click
import msgspec

from kilnwork.api import manager_access, names
from kilnwork.cli import manager_options, options, output_formats
from kilnwork.cli.installation import all_objects, rights, settings

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _quantity(text: str) -> str:
    """Check a Kubernetes quantity, such as 10Gi, and return it."""
    if not _QUANTITY.fullmatch(text):
        raise ValueError(f"{text!r} is not a quantity: write 500m, 2, 512Mi or 10Gi")
    return text


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r}: write KEY=VALUE")
    return key, value


def _toleration(text: str) -> settings.Toleration:
    """Parse KEY[=VALUE][:EFFECT], the form in which kubectl writes a taint."""
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    if not key or (effect and effect not in _EFFECTS):
        known = ", ".join(_EFFECTS)
        raise ValueError(f"{text!r}: write KEY[=VALUE][:EFFECT]; effects are {known}")
    return settings.Toleration(key=key, value=value, effect=effect)


QUANTITY = options.Parsed("QUANTITY", _quantity)
PAIR = options.Parsed("KEY=VALUE", _pair)
TOLERATION = options.Parsed("KEY[=VALUE][:EFFECT]", _toleration)


def _image(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the name of an image after a check of its syntax; no registry is asked."""
    if value is not None and (not value or any(one.isspace() for one in value)):
        raise click.BadParameter(f"{value!r} cannot be the name of an image", ctx, param)
    return value


def _user(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Return a user id other than that of root, or None for the word `node`."""
    if value == "node":
        return None
    if not (value.isascii() and value.isdigit() and 0 < int(value) < 2**31):
        text = f"{value!r}: write the id of a user that is not root, or `node`"
        raise click.BadParameter(text, ctx, param)
    return int(value)


def _label(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Check the syntax of one or several names of namespaces and return them."""
    for name in (value,) if isinstance(value, str) else value:
        if name != names.dns_label(name):
            raise click.BadParameter(f"{name!r} cannot be the name of a namespace", ctx, param)
    return value


@click.command()
@click.option(
    "-n",
    "--namespace",
    metavar="NS",
    default=manager_access.NAMESPACE,
    show_default=True,
    callback=_label,
    help="Namespace of the manager; clients find another one through KILN_MANAGER_NAMESPACE.",
)
@click.option(
    "--image",
    default=settings.IMAGE,
    show_default=True,
    callback=_image,
    help="Image of the manager.",
    metavar="IMAGE",
)
@click.option(
    "--worker-image",
    metavar="IMAGE",
    callback=_image,
    help="Image of worker Pods whose TaskCluster sets none; default: the manager's image.",
)
@click.option(
    "--worker-python",
    metavar="PATH",
    default="python3",
    show_default=True,
    help="Python interpreter in the worker image that has kilnwork installed.",
)
@click.option(
    "--pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    help="imagePullPolicy of the manager; default: the Kubernetes default for the image tag.",
)
@click.option(
    "--pull-secret",
    "pull_secrets",
    multiple=True,
    metavar="NAME",
    help="Name of an image pull Secret; repeatable.",
)
@click.option(
    "--advertise",
    type=manager_options.advertised(),
    metavar="HOST:PORT",
    help="Address to which workers connect; default: the DNS name and port of the Service.",
)
@click.option(
    "--storage",
    type=click.Choice(settings.STORAGES),
    default="pvc",
    show_default=True,
    help="Volume of the journal: a PersistentVolumeClaim, or a directory of the Pod (lost with"
    " the Pod) or of the node.",
)
@click.option(
    "--storage-size",
    type=QUANTITY,
    default="10Gi",
    show_default=True,
    help="Size of the PersistentVolumeClaim.",
)
@click.option(
    "--storage-class",
    metavar="NAME",
    help="StorageClass of the PersistentVolumeClaim; default: that of the cluster.",
)
@click.option("--host-path", metavar="DIR", help="Directory on the node for --storage hostPath.")
@click.option(
    "--node-selector",
    type=PAIR,
    multiple=True,
    help="Label that the manager's node must have; repeatable.",
)
@click.option(
    "--toleration",
    "tolerations",
    type=TOLERATION,
    multiple=True,
    help="Taint that the manager tolerates; repeatable.",
)
@click.option("--priority-class", metavar="NAME", help="PriorityClass of the manager's Pod.")
@click.option(
    "--run-as",
    callback=_user,
    metavar="UID|node",
    default=str(settings.USER),
    show_default=True,
    help="User and group id of the manager's process; `node` for a node of `kiln node`, which"
    " runs all Pods as its own user.",
)
@click.option(
    "--cpu", type=QUANTITY, default="250m", show_default=True, help="CPU request of the manager."
)
@click.option(
    "--memory",
    type=QUANTITY,
    default="512Mi",
    show_default=True,
    help="Memory request and limit of the manager.",
)
@click.option(
    "--drivers-in",
    multiple=True,
    metavar="NS",
    callback=_label,
    help="Namespace whose Python programs may use tokens of ServiceAccount kilnwork-driver;"
    " repeatable.",
)
@click.option(
    "--only-in",
    multiple=True,
    metavar="NS",
    callback=_label,
    help="Serve only this namespace, with rights in no other; repeatable.",
)
@click.option(
    "--only",
    "parts",
    type=click.Choice(settings.PARTS),
    multiple=True,
    help="Print only this part; repeatable. `drivers` requires --drivers-in.",
)
@click.option(
    "--http-executors",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of Pods that send the HTTP requests of tasks (`kiln executor http`).",
)
@manager_options.allowed_kinds(rights.WORKFLOWS)
@click.option(
    "--allow-impersonation",
    is_flag=True,
    help="Let tasks create objects with the rights of ServiceAccounts whose annotation permits it.",
)
@manager_options.options
@click.option("--log-text", is_flag=True, help="Log text instead of JSON.")
@click.option(
    "--log-level",
    type=click.Choice(settings.LOG_LEVELS),
    default="info",
    show_default=True,
    help="Log level.",
)
@click.option("-v", "--verbose", count=True, help="Same as --log-level debug.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Output format.",
)
def command(form: str, **given: Any) -> None:
    """Print the manifests that install the manager in a Kubernetes cluster; change nothing.

    \b
    kiln install --image registry.example/kilnwork:0.1.0 | kubectl apply -f -
    kiln install --image registry.example/kilnwork:0.1.0 | kubectl diff -f -
    kubectl -n kilnwork-system rollout status statefulset/kilnwork-manager

    \b
    kiln install --only namespace | kubectl apply -f -   # before the first kubectl diff

    The same options always print the same text, so it can be kept in a repository. It has five
    parts: `namespace`, the namespace of the manager; `crds`, the kinds and the admission
    policies for TaskObjects and TaskClaims; `rights`, the accounts and roles
    (docs/reference/rights.md explains each); `drivers`, which --drivers-in adds; and `manager`, the
    Service, the StatefulSet and the Deployment of executors.

    \b
    Upgrade:   run the same command with the new image. Workers keep their tasks.
    Uninstall: kiln install --only manager --only rights | kubectl delete -f -
               kiln install --only crds | kubectl delete -f -   deletes all Tasks too
    """
    click.echo(text(all_objects.objects(_settings(given)), form), nl=False)


def text(objects: list[dict[str, Any]], form: str) -> str:
    """Return the objects as text: as YAML documents, or as one List in JSON."""
    if form == "json":
        return output_formats.json_text({"apiVersion": "v1", "kind": "List", "items": objects})
    plain = (msgspec.to_builtins(one) for one in objects)
    return "---\n".join(output_formats.yaml_text(one, sort_keys=False) for one in plain)


def _named_kinds(allowed: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in allowed:
        raise click.UsageError("--allow-kind '*' would need all rights there are: name the kinds")
    return allowed


def _settings(given: dict[str, Any]) -> settings.InstallSettings:
    if (given["storage"] == "hostPath") != bool(given["host_path"]):
        raise click.UsageError("--storage hostPath and --host-path DIR belong together")
    if given["host_path"] and not given["host_path"].startswith("/"):
        raise click.UsageError("--host-path must begin with /")
    if given["storage_class"] and given["storage"] != "pvc":
        raise click.UsageError("--storage-class is for --storage pvc")
    if given["parts"] == ("drivers",) and not given["drivers_in"]:
        raise click.UsageError("--only drivers: name their namespaces by --drivers-in NS")
    if given["drivers_in"] and given["parts"] and "drivers" not in given["parts"]:
        raise click.UsageError("--drivers-in: what it makes is left out; add --only drivers")
    parts = tuple(part for part in settings.PARTS if part in (given["parts"] or settings.PARTS))
    return settings.InstallSettings(
        namespace=given["namespace"],
        image=given["image"],
        worker_image=given["worker_image"],
        worker_python=given["worker_python"],
        pull_policy=given["pull_policy"],
        pull_secrets=given["pull_secrets"],
        advertise=given["advertise"],
        volume=settings.Volume(
            storage=given["storage"],
            size=given["storage_size"],
            class_name=given["storage_class"],
            host_path=given["host_path"] or "",
        ),
        place=settings.Placement(
            node_selector=dict(sorted(given["node_selector"])),
            tolerations=given["tolerations"],
            priority_class=given["priority_class"],
            user=given["run_as"],
        ),
        requests={"cpu": given["cpu"], "memory": given["memory"]},
        limits={"memory": given["memory"]},
        log_json=not given["log_text"],
        log_level="debug" if given["verbose"] else given["log_level"],
        manager_arguments=manager_options.chosen_arguments(click.get_current_context()),
        drivers_in=given["drivers_in"],
        only_in=given["only_in"],
        http_executors=given["http_executors"],
        objects=settings.AllowedObjects(
            kinds=_named_kinds(given["allowed_kinds"]), impersonate=given["allow_impersonation"]
        ),
        ponds=given["ponds"],
        parts=parts,
    )
