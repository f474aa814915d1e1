"""`kiln run`: the Task that it creates from a command line."""

from pathlib import Path

import pytest
import yaml

from kilnwork.cli import main


def dry(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert main.main(["run", "--dry-run", *args]) == 0
    found: dict[str, object] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_options_behind_the_command_belong_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert dry(capsys, "ls", "--name", "x", "-n", "y") == {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"generateName": "run-"},
        "spec": {"command": ["ls", "--name", "x", "-n", "y"]},
    }


def test_every_option_has_its_field(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--name=a --cluster=c --env=X=1=2 --retries=2 --timeout=90s --input=one"
    assert dry(capsys, *options.split(), "--", "x", "-v") == {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "a"},
        "spec": {
            "command": ["x", "-v"],
            "clusterName": "c",
            "env": [{"name": "X", "value": "1=2"}],
            "inputObject": "one",
            "retry": {"maxAttempts": 3},
            "timeouts": {"runningSeconds": 90.0},
        },
    }


def test_input_file_becomes_an_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    file.write_text("[1, 2]")
    spec = dry(capsys, "--input", str(file), "x")["spec"]
    assert isinstance(spec, dict)
    assert spec["inputObject"].startswith("input-")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "Missing argument"),
        (("--env", "X", "--", "x"), "write NAME=VALUE"),
        (("--input", "no/such.json", "--", "x"), "no such file"),
        (("--timeout", "soon", "--", "x"), "not a duration"),
        (("--retries", "-1", "--", "x"), "--retries"),
    ],
)
def test_invalid_arguments_are_usage_errors(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    assert main.main(["run", "--dry-run", *args]) == 2
    assert words in capsys.readouterr().err


def test_input_file_with_two_documents_is_rejected(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("a: 1\n---\nb: 2\n")
    assert main.main(["run", "--dry-run", "--input", str(file), "x"]) == 2
    assert "one JSON or YAML document" in capsys.readouterr().err
