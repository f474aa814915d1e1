"""The tutorials on Python futures and on files by hand: their own files and commands, in order.

A ```python block is a file, named in its first line. A ```text block is what the commands before it
print; `…` stands for anything, and what takes a moment to be so is looked at again.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from kilnwork.kit import ids, processes
from support import pages, waiting
from support import up as up_support

TUTORIALS = [
    pages.DOCS / "tutorial" / name for name in ("from-a-loop-to-a-thousand-tasks.md", "files.md")
]

BEFOREHAND = ("make setup && source .venv/bin/activate", "kiln up")
"""What the fixture has done."""

LOOKS = ("kiln tasks", "kiln logs", "kiln why")
"""Commands that change nothing, so that they may be repeated."""


class Reader:
    """Types what the page says, in the folder of one server."""

    def __init__(self, server: up_support.Up, mark: str) -> None:
        self.folder = server.workdir
        self.environment = {**server.environment, **dict([mark.split("=")])}

    def save(self, program: str) -> None:
        name = re.match(r"# (\w+\.py)\n", program)
        assert name is not None, f"a program without a name: {program[:60]}"
        (self.folder / name[1]).write_text(program)

    def type(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, commands: list[str], shown: str | None) -> None:
        """Run commands; together they print what is shown, if anything is."""
        looks = [*takewhile(lambda command: command.startswith(LOOKS), reversed(commands))][::-1]
        before = "".join(map(self.type, commands[: len(commands) - len(looks)]))
        printed = [before + "".join(map(self.type, looks))]
        if shown is None:
            return
        pattern = re.compile(".*".join(map(re.escape, shown.strip().split("…"))), re.DOTALL)
        while pattern.fullmatch(printed[-1].strip()) is None:
            assert looks, f"$ {commands}\nprinted:\n{printed[-1]}\nand not:\n{shown}"
            assert len(printed) < 50, f"$ {commands}\nprinted at last:\n{printed[-1]}"
            printed.append(before + "".join(map(self.type, looks)))


def blocks(page: Path) -> Iterator[tuple[list[str], str | None] | str]:
    """A program, or commands with what they print (None: the page does not say)."""
    commands: list[str] = []
    for language, body in pages.steps(page.read_text()):
        if language == "text":
            yield commands, body
            commands = []
            continue
        if commands:
            yield commands, None
        commands = pages.console(f"```console\n{body}```\n") if language == "console" else []
        commands = [command for command in commands if command not in BEFOREHAND]
        if language == "python":
            yield body
    assert not commands


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_program_and_command_does_what_the_page_says(up: up_support.Up, page: Path) -> None:
    mark = f"KILN_TEST_MARK={ids.new_uid()}"
    reader = Reader(up, mark)
    for block in blocks(page):
        if isinstance(block, str):
            reader.save(block)
        else:
            reader.follow(*block)
    waiting.wait_until(
        lambda: not processes.belonging(None, marker=mark), what="all processes have ended"
    )


def test_the_program_of_the_readme_counts_the_words_of_the_readme(tmp_path: Path) -> None:
    readme = pages.ROOT / "README.md"
    (program,) = pages.blocks(readme.read_text(), "python")
    script = tmp_path / "words.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=pages.ROOT, check=True
    )
    assert done.stdout == f"{len(readme.read_text().split())}\n"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_what_a_reader_does_beforehand_is_on_the_page(page: Path) -> None:
    assert [c for c in pages.console(page.read_text()) if c in BEFOREHAND] == [*BEFOREHAND]
