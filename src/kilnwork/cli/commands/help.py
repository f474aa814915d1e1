"""`kiln help`: show help on a command, or on a topic that concerns all commands."""

import click

from kilnwork.cli import exits

TOPICS = ("exit-codes",)


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND | TOPIC]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help on a command or on a topic.

    \b
    kiln help run
    kiln help exit-codes

    Topics: `exit-codes`.
    """
    root = ctx.find_root()
    if not words:
        click.echo(root.get_help())
    elif words[0] == "exit-codes":
        click.echo(exit_codes())
    else:
        _on_command(root, words[0])


def _on_command(root: click.Context, name: str) -> None:
    assert isinstance(root.command, click.Group)  # noqa: S101
    found = root.command.get_command(root, name)
    if found is None:
        raise click.UsageError(f"no command or topic {name!r}. Topics: {', '.join(TOPICS)}")
    click.echo(found.get_help(click.Context(found, info_name=name, parent=root)))


def exit_codes() -> str:
    """Return the table of exit codes as text."""
    rows = [f"{code.value:>4}  {meaning}" for code, meaning in exits.MEANINGS.items()]
    return "\n".join(["Exit codes:", "", *rows, "", exits.RUN_NOTE])
