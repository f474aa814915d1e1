"""The counter example by hand: every line a person would copy, with kiln and with kubectl."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import up as up_support


@pytest.fixture
def counter(tmp_path: Path, examples: Path) -> Iterator[up_support.Up]:
    server = up_support.Up(tmp_path / "data", workdir=examples / "01-counter")
    server.start()
    try:
        yield server
    finally:
        server.stop()


def verify(server: up_support.Up, *arguments: str) -> str:
    done = server._run(["python3", "verify.py", *arguments], check=True, stdin=None, timeout_s=120)
    return done.stdout


def test_every_task_makes_the_next_until_the_limit(counter: up_support.Up) -> None:
    counter.kiln("apply", "-f", "cluster.yaml")
    counter.kiln("apply", "-f", "start.yaml")
    assert "51 tasks succeeded and the count is 50" in verify(counter)
    names = {t["metadata"]["name"] for t in counter.get("tasks")["items"]}
    assert names == {f"task-{n}" for n in range(51)}


def test_verify_fails_when_a_task_is_missing(counter: up_support.Up) -> None:
    counter.kiln("apply", "-f", "cluster.yaml")
    done = counter._run(
        ["python3", "verify.py", "--timeout", "1"], check=False, stdin=None, timeout_s=60
    )
    assert done.returncode == 1
    assert "51 tasks are missing: task-0" in done.stderr


@pytest.mark.curl
def test_the_curl_counter_makes_no_objects(counter: up_support.Up) -> None:
    counter.kiln("apply", "-f", "cluster.yaml")
    counter.kiln("run", "--cluster", "counter", "--name", "curl-counter", "--", "sh", "start.sh")
    assert "51 tasks succeeded and the count is 50" in verify(counter, "--spawned")
    declared = counter.get("tasks")["items"]
    assert [t["metadata"]["name"] for t in declared] == ["curl-counter"]
    assert counter.get("taskobjects")["items"] == []
