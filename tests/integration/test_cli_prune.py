"""`kiln prune` and `kiln delete task ID`: disk space of the server, and the usage of calls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support


@kiln.task
def hold(mebibytes: int) -> int:
    """Touch so much memory."""
    return len(b"x" * (mebibytes << 20))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=1) as made:
        yield made


def _listed(up: up_support.UpServer, task: str) -> list[dict[str, Any]]:
    """Return the row of the task in `kiln tasks`; other tests have tasks on this server too."""
    items = json.loads(up.kiln("tasks", "-o", "json").stdout)["items"]
    return [item for item in items if item["id"] == task]


def test_finished_call_shows_its_usage_and_is_deleted(
    up: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(up.data / "kubeconfig"))
    with kiln.connect():
        future = hold.submit(300)
        assert future.result(60) == 300 << 20
    dry = up.kiln("prune", "--keep", "0", "--dry-run").stdout
    assert dry == "0 tasks would be forgotten, about 0.0 MiB\n"  # it ended a moment ago
    [shown] = _listed(up, future.id)
    assert shown["peakMemoryBytes"] > 300 << 20
    assert shown["cpuSeconds"] > 0
    header, *rows = up.kiln("tasks", "-o", "wide").stdout.splitlines()
    [row] = [row for row in rows if row.startswith(future.id)]
    at = header.index("PEAK")
    assert row[at:].split()[1] == "MiB"
    assert "of CPU and up to 3" in up.kiln("why", future.id).stdout
    done = up.kiln("delete", "task", future.id)
    assert done.stdout == f"task {future.id} deleted, with its result and output\n"
    assert _listed(up, future.id) == []


def test_prune_lists_what_it_would_delete(up: up_support.UpServer, tmp_path: Path) -> None:
    done = up.kiln("prune", check=False)
    assert done.returncode != 0
    assert "name what to delete: --older-than, --keep or --free" in done.stderr
    assert up.kiln("prune", "--older-than", "1d", "-A").stdout.startswith("0 tasks forgotten")


def test_task_object_shows_its_usage(up: up_support.UpServer) -> None:
    code = "held = b'x' * (300 << 20)"
    up.kiln("run", "--name", "large", "--watch", "--", "python3", "-c", code)
    text = up.kiln("why", "large").stdout
    assert text.startswith("Task large succeeded")
    assert " s of CPU and up to 3" in text
    assert "MiB of memory" in text
