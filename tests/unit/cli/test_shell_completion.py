"""Completion of arguments; without a server kinds and files, and never an error."""

from pathlib import Path

import pytest

from kilnwork.cli import main


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("_KILN_COMPLETE", "bash_complete")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("get taskc", "plain,taskclusters\nplain,taskclaims\n"),
        ("delete ta", "plain,tasks\nplain,taskobjects\nplain,taskclusters\nplain,taskclaims\n"),
        ("get tasks -o w", "plain,wide\n"),
        ("apply -f x", "file,x\n"),
        ("run --input x", "file,x\n"),
        ("get tasks a", ""),
        ("get pod/a", ""),
        ("logs a", ""),
        ("why a", ""),
        ("run-job a", ""),
        ("run-job a --option w", ""),
        ("run-job -O x", "file,x\n"),
        ("jobs a", ""),
        ("pause job/a", ""),
        ("jobs -o w", "plain,wide\n"),
    ],
)
def test_arguments_are_completed(
    line: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_WORDS", f"kiln {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    with pytest.raises(SystemExit):
        main.main([])
    out, err = capsys.readouterr()
    assert (out.removeprefix("\n"), err) == (expected, "")
