"""`kiln render`: show the objects that a SyncSet becomes, without a server."""

from typing import Any

import click
import yaml

from kilnwork import version
from kilnwork.cli import errors, manifests, set_rendering


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path())
@click.option(
    "--backend",
    type=click.Choice(set_rendering.BACKENDS),
    help="What starts the workers together; default that of the SyncSet, for auto: pods.",
)
@click.option("--namespace", default="default", show_default=True, help="Unless a file names one.")
@click.option(
    "--image",
    default=f"kilnwork/worker:{version.__version__}",
    show_default=True,
    help="Of workers whose template names none.",
)
def command(files: tuple[str, ...], backend: str | None, namespace: str, image: str) -> None:
    """Print the objects that the SyncSets of these files become, as YAML; - is standard input.

    \b
    kiln render eod-risk.yaml
    kiln render eod-risk.yaml --backend volcano > job.yaml

    With local and pods these are the TaskClusters, whose Pods the manager makes. With volcano it is
    a Job of Volcano with the Pods of all groups, and TaskClusters without Pods of their own, whose
    tokens those workers use. What only a server knows is left out: digests, and uids of owners.
    """
    made: list[dict[str, Any]] = []
    for manifest in manifests.read(files):
        if not set_rendering.is_sync_set(manifest.body):
            continue
        try:
            made += set_rendering.objects(
                manifest.body, backend=backend, namespace=namespace, image=image
            )
        except errors.Unusable as error:
            raise errors.Unusable(f"{manifest.place}: {error}") from error
    if not made:
        raise errors.Unusable(f"{', '.join(files)}: there is no SyncSet")
    text = yaml.safe_dump_all(made, sort_keys=False, width=100, allow_unicode=True)
    click.echo(text, nl=False)
