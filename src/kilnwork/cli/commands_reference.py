"""Generator of docs/reference/commands.md: `python -m kilnwork.cli.commands_reference FILE`.

The page is written by hand except for its generated blocks, each between a `begin` and an `end`
comment. They hold what the commands themselves define: summaries, help texts, examples, options,
defaults and exit codes. Used by `make docs` and by the test that the page is current; never by
`kiln` itself.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kilnwork.cli import exits, main

_SHARED = frozenset({"namespace", "all_namespaces", "kubeconfig", "context"})
"""Names of the options that choose the server: described once, not in each section."""

_SHELL_WORDS = frozenset({"kiln", "kubectl", "curl", "zcat", "source"})
"""First words of lines that are shown as shell commands."""

_CODE = re.compile(
    r"""(?<![\w`$/.-])(?:
        --?[a-zA-Z][\w-]*(?:=\w+)?       # option
      | \$\{[^}]*\}[\w./]*\w             # ${VARIABLE}
      | \$[A-Z_]+                        # $VARIABLE
      | [\w/.]*\*[\w*/.]*                # pattern
      | \w+=[\w.!<>\[\]/-]*[\w\]>]       # NAME=VALUE
      | [a-z]+/[A-Z]+                    # kind/NAME
    )(?![\w`])""",
    re.VERBOSE,
)


class MissingBlock(Exception):
    """docs/reference/commands.md has no block for something that the commands define."""


def page(text: str) -> str:
    """Return the text of docs/reference/commands.md with its generated blocks made current.

    `text`: the present text of the page. Raises MissingBlock for a block that the page does not
    have exactly once.
    """
    for name, body in _blocks():
        begin = f"<!-- begin {name}: written by `make docs` -->\n"
        end = f"<!-- end {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise MissingBlock(f"the page needs these lines once:\n{begin}{end}")
        head, _, rest = text.partition(begin)
        text = head + begin + "\n" + body.strip("\n") + "\n\n" + end + rest.partition(end)[2]
    return text


def _blocks() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each generated block."""
    root = click.Context(main.kiln, info_name="kiln")
    yield (
        "commands",
        _table(
            ("command", "summary"),
            [(f"[`kiln {name}`](#kiln-{name})", e.help) for name, e in main.COMMANDS.items()],
        ),
    )
    shared = [option for option in _options(main.kiln) if option.name in _SHARED]
    yield "server options", _option_table(root, shared)
    yield (
        "exit codes",
        _table(
            ("code", "meaning"), [(str(int(code)), text) for code, text in exits.MEANINGS.items()]
        ),
    )
    for name in main.COMMANDS:
        command = main.kiln.get_command(root, name)
        assert command is not None  # noqa: S101 - the table has it
        context = click.Context(command, info_name=name, parent=root)
        yield f"kiln {name}", _description(context)
        yield f"options of kiln {name}", _own_options(context)


def _description(context: click.Context) -> str:
    """Return the summary, usage line, examples and explanation of a command."""
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    first, *paragraphs = inspect.cleandoc(context.command.help or "").split("\n\n")
    return "\n\n".join(
        [_as_markdown(first), f"```text\n{usage}\n```", *map(_paragraph, paragraphs)]
    )


def _paragraph(text: str) -> str:
    verbatim = text.startswith("\b\n")
    if not verbatim:
        return _as_markdown(" ".join(text.split()))
    lines = text.removeprefix("\b\n").splitlines()
    if all(line.split()[0] in _SHELL_WORDS for line in lines):
        return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])
    return "\n".join(["```text", *lines, "```"])


def _own_options(context: click.Context) -> str:
    kept = [option for option in _options(context.command) if not _chooses_server(option)]
    if not kept:
        return "The command has no options of its own."
    return _option_table(context, kept)


def _chooses_server(option: click.Option) -> bool:
    """Return whether an option is the shared option that chooses the server.

    `kiln install` and `kiln manager` have options of the same names with another meaning.
    """
    return option.name in _SHARED and not option.expose_value


def _options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def _option_table(context: click.Context, options: list[click.Option]) -> str:
    rows = [(f"`{_names(context, option)}`", _meaning(option)) for option in options]
    return _table(("option", "meaning"), rows)


def _names(context: click.Context, option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    if option.metavar is None and isinstance(option.type, click.Choice):
        return f"{names} {'FORMAT' if option.name == 'form' else 'VALUE'}"
    return f"{names} {option.make_metavar(context)}"


def _meaning(option: click.Option) -> str:
    sentences = [_as_markdown(option.help or "")]
    if isinstance(option.type, click.Choice):
        choices = [f"`{choice}`" for choice in option.type.choices]
        sentences.append(f"One of {', '.join(choices)}." if choices[1:] else f"Only {choices[0]}.")
    if option.required:
        sentences.append("Required.")
    elif option.show_default and option.default not in (None, (), ""):
        each = option.default if isinstance(option.default, tuple) else (option.default,)
        shown = [f"{one:g}" if isinstance(one, float) else str(one) for one in each]
        sentences.append(f"Default: {', '.join(f'`{text}`' for text in shown)}.")
    return " ".join(sentences)


def _as_markdown(text: str) -> str:
    """Return a help text as Markdown, with options, variables and patterns set as code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else _CODE.sub(lambda found: f"`{found[0]}`", piece)
        for piece in pieces
    )


def _table(header: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [header, ("---", "---"), *rows]
    escaped = (tuple(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "\n".join(f"| {left} | {right} |" for left, right in escaped)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text()))
