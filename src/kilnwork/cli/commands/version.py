"""`kiln version`: show the versions of this program and of its server."""

from typing import Any

import click

from kilnwork import version
from kilnwork.cli import errors, options, output_formats, session


@click.command()
@options.target
@click.option(
    "--client", is_flag=True, help="Show only the version of this program; ask no server."
)
@options.output("json", "yaml")
def command(client: bool, form: str | None) -> None:  # noqa: FBT001
    """Show the versions of client and server.

    \b
    kiln version
    kiln version --client -o json
    """
    facts: dict[str, Any] = {"client": {"version": version.__version__}}
    failure: errors.CommandError | None = None
    if not client:
        try:
            facts["server"] = session.run(_server)
        except errors.CommandError as error:
            failure = error
    if form is None:
        click.echo(f"client: kiln {version.__version__}")
        if "server" in facts:
            click.echo(f"server: {facts['server'].get('gitVersion')} at {facts['server']['url']}")
    else:
        click.echo(output_formats.document(facts, form), nl=False)
    if failure is not None:
        raise failure


async def _server(s: session.Session) -> dict[str, Any]:
    return {**await s.get_json("/version"), "url": s.server}
