"""The table of commands and the way from errors to exit codes."""

import subprocess
import sys

import click
import pytest

from kilnwork import version
from kilnwork.cli import exits, main


def test_every_command_of_the_table_loads_and_has_its_name() -> None:
    for name in main.COMMANDS:
        command = main.kiln.get_command(click.Context(main.kiln), name)
        assert command is not None
        assert command.name == name


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(entry.help in text for entry in main.COMMANDS.values())


def test_help_imports_no_command_and_nothing_heavy() -> None:
    program = (
        "import sys; from kilnwork.cli import main; main.main(['--help']);"
        "heavy = {'yaml', 'msgspec', 'asyncio', 'aiohttp', 'rich', 'uvicorn', 'pathlib'};"
        "heavy |= {'json', 'logging'};"
        "bad = heavy & set(sys.modules);"
        "bad |= {m for m in sys.modules if m.startswith('kilnwork.cli.commands.')};"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lags"]) == 2
    assert "no such command: 'lags'" in capsys.readouterr().err
    assert main.main(["loogs"]) == 2
    assert "Did you mean logs?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"kiln {version.__version__}\n"


def test_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help", "exit-codes"]) == 0
    text = capsys.readouterr().out
    assert all(f"{code.value:>4}  " in text for code in exits.Exit)


def test_commands_of_other_systems_get_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for word, instead in (("describe", "kiln why"), ("job", "kiln jobs"), ("ps", "kiln tasks")):
        assert main.main([word]) == exits.Exit.USAGE
        assert f"`{instead}" in capsys.readouterr().err


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help", "help"]) == 0
    assert "Usage: kiln help" in capsys.readouterr().out
    assert main.main(["help", "nonsense"]) == 2


def test_completion_lists_commands_without_loading_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["completion", "bash"]) == 0
    assert "_KILN_COMPLETE=bash_complete" in capsys.readouterr().out
    monkeypatch.setenv("_KILN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kiln ca")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        main.main([])
    assert capsys.readouterr().out == "plain,cancel\n"


INTERRUPTED = """
import signal, sys
sys.argv = ["/usr/bin/kiln", "--help"]
import kilnwork.cli
print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)
from kilnwork.cli import main
main.main()
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_interrupt_during_imports_shows_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True
    )
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("True", "True")
