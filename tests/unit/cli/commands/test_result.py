"""`kiln result`: source and target of the result."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.cli import exits
from kilnwork.data import local_blobs
from kilnwork.dispatch import model
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.kit import ids
from support import serverless_cli, view_samples


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "Missing argument"),
        ("a -o {tmp}/none/result", "none"),
        ("a --data", "requires an argument"),
        ("a b", "unexpected extra argument"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str, words: str
) -> None:
    ended = kiln.run("result", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a -o {tmp}/result",
        "job/a",
        "syncset/a",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str
) -> None:
    ended = kiln.run("result", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


def test_directory_without_a_journal_has_no_tasks(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path
) -> None:
    ended = kiln.run("result", "a", "--data", str(tmp_path))
    assert ended.code == exits.Exit.NOT_FOUND
    assert "has no journal.db" in ended.err


class Journal:
    """Journal with task `a` in namespace `team`, whose result is a blob."""

    def __init__(self, digest: bytes) -> None:
        result = attempts.Payload(attempts.JSON, b"", digest, size=3)
        self._view = view_samples.waiting(
            namespace="team", state=api_task.State.SUCCESS, result=result
        )

    def task(self, task: ids.TaskId) -> model.TaskView | None:
        return self._view if task == self._view.task else None

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        return self._view if (namespace, name) == ("team", "a") else None

    def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        is_begin = ids.task_text(self._view.task).startswith(digits)
        return [self._view.task] if namespace == "team" and is_begin else []

    def tasks(self, namespace: str, **_: Any) -> tuple[list[model.TaskView], None]:
        return ([self._view] if namespace == "team" else []), None

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("a -n team", exits.Exit.OK),
        (f"{view_samples.UID[:8]} -n team", exits.Exit.OK),
        (view_samples.UID, exits.Exit.OK),
        ("a", exits.Exit.NOT_FOUND),
        ("b -n team", exits.Exit.NOT_FOUND),
    ],
)
def test_task_of_a_directory_is_found_in_the_given_namespace(
    kiln: serverless_cli.ServerlessCli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    code: int,
) -> None:
    (tmp_path / "journal.db").touch()
    digest, _ = local_blobs.Blobs(tmp_path / "blobs" / "team", durable=True).put([b"[1]"])
    monkeypatch.setattr(queries, "Queries", lambda _: Journal(digest))
    target = tmp_path / "result"
    ended = kiln.run("result", "--data", str(tmp_path), "-o", str(target), *line.split())
    assert ended.code == code, ended.err
    assert (target.read_bytes() if target.exists() else None) == (None if code else b"[1]")
    assert ("has no task" in ended.err) == bool(code)
