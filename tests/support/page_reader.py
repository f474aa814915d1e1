"""Follows a page of the documentation as a reader does: saves its files and types its commands, in
order.

Used by the tests of README, tutorials and how-tos. A block whose first line is `# NAME` is a file.
The commands of a ```console block are run one after the other in one directory. A ```text block is
the combined output of the commands before it; `…` stands for anything. `Page` lists what a test has
done already, what it types instead and what it leaves out; an entry that fits nothing on the page
is an error, so that no page changes unnoticed.
"""

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from support import pages

LOOKS = (
    "kiln tasks", "kiln jobs", "kiln schedule", "kiln logs", "kiln why", "kiln get", "kiln status",
    "kubectl get",
)  # fmt: skip
"""Beginnings of read-only commands: they are repeated until they print the stated output."""

ATTEMPTS = 50
"""So often at most; the commands themselves take most of the time."""

_NAMED = re.compile(r"# ([\w./-]+\.(?:py|yaml|json|sh))\n")
_COMMENT = re.compile(r"\s+# .*$")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page and what is special about reading it in a test.

    `beforehand`: commands that the test's fixture has carried out. `left_out`: beginnings of
    commands that are not run, each with the reason. `instead`: replacements in the typed text.
    `before`: called before the command whose beginning is the key, to set up what a reader has.
    `after`: called with the output of the command with that beginning, to check it, or to let other
    things happen.
    """

    path: Path
    beforehand: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Callable[["Reader"], None]] = field(default_factory=dict)
    after: Mapping[str, Callable[["Reader", str], None]] = field(default_factory=dict)

    def commands(self) -> list[str]:
        """Return all commands of the page, without comments behind them."""
        return [plain(command) for command in pages.console(self.path.read_text())]

    def runs(self, command: str) -> bool:
        """Return whether the test types this command of the page."""
        return command not in self.beforehand and not command.startswith(tuple(self.left_out))

    def unused(self) -> list[str]:
        """Return the entries about commands or text that the page does not have."""
        commands = self.commands()
        text = self.path.read_text()
        starts = [*self.left_out, *self.before, *self.after]
        return [
            *(output for output in self.beforehand if output not in commands),
            *(start for start in starts if not any(c.startswith(start) for c in commands)),
            *(piece for piece in self.instead if piece not in text),
        ]

    def blocks(self) -> Iterator[tuple[list[str], str | None] | tuple[str, str]]:
        """Yield (name, content) of a file, or (commands, their output or None if the page does not
        show it).
        """
        commands: list[str] = []
        for language, body in pages.steps(self.path.read_text()):
            if language == "text":
                if commands:  # else all of them are left out
                    yield commands, body
                commands = []
                continue
            if commands:
                yield commands, None
                commands = []
            if language == "console":
                commands = [
                    command
                    for command in map(plain, pages.console(f"```console\n{body}```\n"))
                    if self.runs(command)
                ]
            elif named := _NAMED.match(body):
                yield named[1], body
        if commands:
            yield commands, None


def plain(command: str) -> str:
    """Return a one-line command without its comment; other commands unchanged."""
    return command if "\n" in command else _COMMENT.sub("", command)


class Reader:
    """Follows pages in one directory and environment.

    `cleanup` stops what `Page.before` starts and the page does not stop.
    """

    def __init__(self, page: Page, directory: Path, environment: Mapping[str, str]) -> None:
        self.page = page
        self.directory = directory
        self.environment = environment
        self.instead = dict(page.instead)
        self.cleanup = contextlib.ExitStack()

    def read(self) -> None:
        assert self.page.unused() == [], f"not on {self.page.path.name}"
        with self.cleanup:
            for first, second in self.page.blocks():
                if isinstance(first, str):
                    assert second is not None
                    self.save(first, second)
                else:
                    self.follow(first, second)

    def save(self, name: str, content: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def type(self, command: str) -> str:
        """Run a command, which must exit with 0 within 90 seconds; return its standard output."""
        typed = command
        for piece, other in self.instead.items():
            typed = typed.replace(piece, other)
        for start, make in self.page.before.items():
            if command.startswith(start):
                make(self)
        done = subprocess.run(
            ["bash", "-c", typed],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            env=dict(self.environment),
            cwd=self.directory,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"$ {typed}\n{done.stdout}{done.stderr}"
        for start, then in self.page.after.items():
            if command.startswith(start):
                then(self, done.stdout)
        return done.stdout

    def follow(self, commands: list[str], stated: str | None) -> None:
        """Run commands; their combined output must be as stated, if the page states it."""
        looks = [*takewhile(lambda command: command.startswith(LOOKS), reversed(commands))][::-1]
        before = "".join(map(self.type, commands[: len(commands) - len(looks)]))
        printed = before + "".join(map(self.type, looks))
        if stated is None:
            return
        pattern = re.compile(".*".join(map(re.escape, stated.strip().split("…"))), re.DOTALL)
        for _ in range(ATTEMPTS):
            if pattern.fullmatch(printed.strip()):
                return
            assert looks, f"$ {commands}\nprinted:\n{printed}\nand not:\n{stated}"
            printed = before + "".join(map(self.type, looks))
        raise AssertionError(f"$ {commands}\nprinted at last:\n{printed}\nand not:\n{stated}")
