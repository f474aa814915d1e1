"""`kiln completion`: a script that teaches the shell our commands and options."""

import click
from click import shell_completion

from kilnwork.cli import errors

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script.

    \b
    bash: source <(kiln completion bash)
    zsh:  source <(kiln completion zsh)
    fish: kiln completion fish | source
    """
    made = shell_completion.get_completion_class(shell)
    if made is None:
        raise errors.Unusable(f"no completion for {shell}")
    root = ctx.find_root().command
    # bash 4.4 or newer is taken for granted: asking it would start a process.
    script = made(root, {}, "kiln", "_KILN_COMPLETE")
    click.echo(script.source_template % script.source_vars())
