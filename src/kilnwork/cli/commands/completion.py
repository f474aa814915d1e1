"""`kiln completion`: print a script that lets a shell complete the arguments of `kiln`."""

import click
from click import shell_completion

from kilnwork.cli import errors

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script for bash, zsh or fish.

    \b
    source <(kiln completion bash)     # in ~/.bashrc
    source <(kiln completion zsh)      # in ~/.zshrc
    kiln completion fish | source      # in ~/.config/fish/config.fish

    The script completes commands, options, kinds, files and, if the server responds within a
    second, names of objects.
    """
    made = shell_completion.get_completion_class(shell)
    if made is None:
        raise errors.InvalidInput(f"no completion for {shell}")
    root = ctx.find_root().command
    # Assumes bash 4.4 or newer: checking the version would start a process.
    script = made(root, {}, "kiln", "_KILN_COMPLETE")
    click.echo(script.source_template % script.source_vars())
