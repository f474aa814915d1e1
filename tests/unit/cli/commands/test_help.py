"""`kiln help`: all commands, one of them, or a topic."""

import pytest

from kilnwork.cli import exits, main
from support import serverless_cli


def test_help_without_arguments_lists_all_commands(kiln: serverless_cli.ServerlessCli) -> None:
    assert kiln.run("help").out == kiln.run("--help").out
    assert all(entry.help in kiln.run("help").out for entry in main.COMMANDS.values())


@pytest.mark.parametrize("name", ["apply", "run-job", "kill"])
def test_help_on_a_command_is_its_own_help(kiln: serverless_cli.ServerlessCli, name: str) -> None:
    ended = kiln.run("help", name)
    assert ended.code == exits.Exit.OK
    assert ended.out.startswith(f"Usage: kiln {name} ")
    assert ended.out == kiln.run(name, "--help").out


def test_exit_codes_have_a_line_each_and_a_note(kiln: serverless_cli.ServerlessCli) -> None:
    text = kiln.run("help", "exit-codes").out
    assert text.rstrip("\n").endswith(f"\n\n{exits.RUN_NOTE}")
    rows = text.removesuffix(f"{exits.RUN_NOTE}\n").split("\n\n")[1].splitlines()
    assert [row.split()[0] for row in rows] == [str(code.value) for code in exits.Exit]


def test_unknown_topic_is_a_usage_error_that_names_the_topics(
    kiln: serverless_cli.ServerlessCli,
) -> None:
    ended = kiln.run("help", "lags")
    assert ended.code == exits.Exit.USAGE
    assert "no command or topic 'lags'. Topics: exit-codes" in ended.err
