"""docs/reference/commands.md is current, and pages use only commands and options that exist."""

from pathlib import Path
from typing import Any

import click
import pytest

from kilnwork.cli import commands_reference, exits, main
from kilnwork.cli.commands import help as help_command
from support import pages

PAGE = (pages.DOCS / "reference" / "commands.md").read_text()
SECTIONS = pages.sections(PAGE, 2)
TARGET = {"-n", "--namespace", "-A", "--all-namespaces", "--kubeconfig", "--context"}

EXAMPLES = [
    pytest.param(path, line, id=f"{path.relative_to(pages.ROOT)}: kiln {' '.join(line)[:50]}")
    for path in (*pages.all_pages(), *sorted(pages.ROOT.glob("examples/*/README.md")))
    for command in pages.console(path.read_text())
    for line in pages.kiln_lines(command)
]


def command(name: str) -> click.Command:
    found = main.kiln.get_command(click.Context(main.kiln), name)
    assert found is not None, f"there is no `kiln {name}`"
    return found


def options(of: click.Command) -> dict[frozenset[str], click.Option]:
    return {
        frozenset({*o.opts, *o.secondary_opts}): o for o in of.params if isinstance(o, click.Option)
    }


def names(row: pages.Row) -> frozenset[str]:
    """Return the option's names in the first cell of a row, without its metavar."""
    return frozenset(word.strip(",") for word in row.key.split() if word.startswith("-"))


def own(name: str) -> dict[frozenset[str], click.Option]:
    """Return the options of a command without the shared ones, which choose the server."""
    found = options(command(name))
    return {names: o for names, o in found.items() if o.expose_value or not names <= TARGET}


def test_generated_blocks_are_current() -> None:
    assert commands_reference.page(PAGE) == PAGE, "run `make docs`"


def test_page_without_a_block_is_refused() -> None:
    with pytest.raises(commands_reference.MissingBlock, match="begin commands"):
        commands_reference.page("# Commands\n")


def test_list_of_commands_is_complete() -> None:
    rows = [row.cells for row in pages.table(PAGE.partition("\n## ")[0])]
    assert rows == [
        (f"[`kiln {name}`](#kiln-{name})", entry.help) for name, entry in main.COMMANDS.items()
    ]


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_option_is_described_once(name: str) -> None:
    rows = [names(row) for row in pages.table(SECTIONS[f"kiln {name}"])]
    assert sorted(rows, key=sorted) == sorted(own(name), key=sorted)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_defaults_and_choices_are_named(name: str) -> None:
    for row in pages.table(SECTIONS[f"kiln {name}"]):
        option = own(name)[names(row)]
        for word in (*_choices(option), *_default(option)):
            meaning = f"`{row.cells[1]}`"  # a cell that is one word has lost its backticks
            assert f"`{word}`" in meaning, f"kiln {name} {row.key}: {word}"


def _choices(option: click.Option) -> list[Any]:
    return list(option.type.choices) if isinstance(option.type, click.Choice) else []


def _default(option: click.Option) -> list[str]:
    if not option.show_default:
        return []
    each = option.default if isinstance(option.default, tuple) else (option.default,)
    return [f"{one:g}" if isinstance(one, float) else str(one) for one in each]


def test_options_that_choose_the_server_are_described() -> None:
    rows = {name for row in pages.table(SECTIONS["Which server"]) for name in names(row)}
    assert rows == TARGET
    kubeconfig = frozenset({"--kubeconfig"})
    without = [n for n in main.COMMANDS if kubeconfig not in options(command(n))]
    assert without == ["up", "down", "install", "render", "completion", "help"]
    named = "but `up`, `down`, `install`, `render`, `completion` and `help`"
    assert named in SECTIONS["Which server"]


def test_exit_codes_are_those_of_the_program() -> None:
    rows = [row.cells for row in pages.table(SECTIONS["Exit codes"])]
    assert rows == [(str(int(code)), text) for code, text in exits.MEANINGS.items()]


def test_every_help_topic_is_named() -> None:
    assert all(f"`{topic}`" in SECTIONS["kiln help"] for topic in help_command.TOPICS)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_an_example(name: str) -> None:
    lines = [line for text in _consoles(name) for line in pages.kiln_lines(text)]
    assert name in {line[0] for line in lines}


def _consoles(name: str) -> list[str]:
    start = PAGE.index(f"\n## `kiln {name}`\n")
    end = PAGE.find("\n## ", start + 1)
    return pages.console(PAGE[start : end if end > 0 else None])


@pytest.mark.parametrize(("page", "line"), EXAMPLES)
def test_examples_use_commands_and_options_that_exist(
    page: Path, line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parses the lines like `kiln` does, values included, without running them."""
    monkeypatch.chdir(pages.ROOT)
    parse(line)
    assert page.is_file()


def parse(line: list[str]) -> None:
    name, *arguments = line
    command(name).make_context(f"kiln {name}", arguments)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_examples_in_help_texts_use_what_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pages.ROOT)
    for block in (command(name).help or "").split("\b\n")[1:]:
        for text in block.partition("\n\n")[0].splitlines():
            for line in pages.kiln_lines(text):
                parse(line)
