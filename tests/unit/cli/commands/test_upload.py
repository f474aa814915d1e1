"""`kiln upload`: arguments that are rejected before a server is asked."""

from pathlib import Path

import pytest

from kilnwork.cli import exits, main


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("1\n")
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.main(["upload", *words]) == exits.Exit.USAGE
    return capsys.readouterr().err


@pytest.mark.parametrize("words", [("cat",), ("b.jsonl", "c.jsonl")])
def test_second_file_is_rejected_with_a_hint_about_programs(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    said = refusal(capsys, "in.jsonl", *words, "--mapper", "identity")
    assert f"one FILE is uploaded, so what is {words[0]!r}? A program comes after --" in said


def test_directory_and_missing_file_are_rejected(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "logs").mkdir()
    said = refusal(capsys, "logs", "--mapper", "identity")
    assert said == (
        "error: logs: it is a directory: name a file in it, or send several as one: "
        "cat logs/* | kiln upload - …\n"
    )
    said = refusal(capsys, "no.jsonl", "--mapper", "identity")
    assert said == "error: no.jsonl: No such file or directory\n"


def test_impossible_file_name_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 300
    said = refusal(capsys, "in.jsonl", "--mapper", "identity", "-o", name)
    assert said == f"error: -o {name}: File name too long\n"


@pytest.mark.parametrize("name", ["in.jsonl", "./in.jsonl", "link.jsonl"])
def test_result_does_not_replace_its_input(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (directory / "link.jsonl").symlink_to("in.jsonl")
    said = refusal(capsys, "in.jsonl", "--mapper", "identity", "-o", name)
    assert said == f"error: -o {name}: this is the file to upload; name another one\n"
    assert (directory / "in.jsonl").read_text() == "1\n"
