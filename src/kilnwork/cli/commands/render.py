"""`kiln render`: print the objects that a SyncSet creates, without a server."""

from typing import Any

import click

from kilnwork import version
from kilnwork.cli import errors, manifests, sync_set_rendering
from kilnwork.cli import output_formats as cli_render


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path())
@click.option(
    "--backend",
    type=click.Choice(sync_set_rendering.BACKENDS),
    help="Backend that starts the workers together; default: that of the SyncSet, pods if it"
    " is auto.",
)
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    metavar="NS",
    help="Namespace of SyncSets that set none.",
)
@click.option(
    "--image",
    default=f"kilnwork/worker:{version.__version__}",
    show_default=True,
    metavar="IMAGE",
    help="Image of workers whose template sets none.",
)
def command(files: tuple[str, ...], backend: str | None, namespace: str, image: str) -> None:
    """Print the objects that the SyncSets in files create, as YAML; no server is needed.

    \b
    kiln render eod-risk.yaml
    kiln render eod-risk.yaml --backend volcano > job.yaml

    With the backends local and pods these are TaskClusters, whose Pods the manager creates. With
    volcano they are a Volcano Job with the Pods of all groups, and TaskClusters without Pods of
    their own, whose tokens the workers use. Values that only a server knows are omitted: digests
    and owner uids. FILE - is standard input.
    """
    made: list[dict[str, Any]] = []
    for manifest in manifests.read(files):
        if not sync_set_rendering.is_sync_set(manifest.body):
            continue
        try:
            made += sync_set_rendering.objects(
                manifest.body, backend=backend, namespace=namespace, image=image
            )
        except errors.InvalidInput as error:
            raise errors.InvalidInput(f"{manifest.place}: {error}") from error
    if not made:
        raise errors.InvalidInput(f"{', '.join(files)}: there is no SyncSet")
    click.echo("---\n".join(cli_render.yaml_text(one, sort_keys=False) for one in made), nl=False)
