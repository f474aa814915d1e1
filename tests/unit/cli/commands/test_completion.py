"""`kiln completion`: scripts for three shells."""

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("shell", "word"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef kiln"), ("fish", "complete --no-files")],
)
def test_each_shell_has_its_script(
    kiln: serverless_cli.ServerlessCli, shell: str, word: str
) -> None:
    ended = kiln.run("completion", shell)
    assert ended.code == exits.Exit.OK
    assert word in ended.out
    assert f"_KILN_COMPLETE={shell}_complete" in ended.out


@pytest.mark.parametrize(
    ("arguments", "words"), [((), "Missing argument"), (("tcsh",), "'tcsh' is not one of")]
)
def test_unknown_shell_is_a_usage_error(
    kiln: serverless_cli.ServerlessCli, arguments: tuple[str, ...], words: str
) -> None:
    ended = kiln.run("completion", *arguments)
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err
