"""SyncSets built in Python, on `kiln up`: uploaded code, and operations on a run."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import sync_set
from support import up_server, waiting

POND = "{apiVersion: kilnwork.dev/v1alpha1, kind: DataPond, metadata: {name: default}}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path, slots=2) as made:
        yield made


@pytest.fixture
def session(server: up_server.UpServer) -> Iterator[Any]:
    with kiln.connect(server.data / "kubeconfig") as opened:
        yield opened


def lines(shard: dict[str, Any], start: int = 0) -> int:
    return start + sum(1 for _ in kiln.Shard(shard).records())


def wait_for(path: str) -> str:
    """Return when a file exists."""
    while not os.path.exists(path):  # noqa: PTH110 - it is pickled by value
        time.sleep(0.02)
    return path


def waiting_set(path: Path, name: str = "waits", **group: Any) -> kiln.SyncSet:
    ss = kiln.SyncSet(name)
    ss.group("worker", **group)
    ss.call(wait_for, path=str(path))
    ss.call(lambda: "after").options(name="after")
    return ss


def running(run: kiln.SetRun) -> None:
    waiting.wait_until(
        lambda: any(step.running for step in run.steps().values()), what="a step runs"
    )


def test_code_is_uploaded_and_second_submit_makes_a_generation(
    server: up_server.UpServer, session: Any
) -> None:
    server.kiln("apply", "-f", "-", stdin=POND)
    results = []
    for start in (0, 100):
        with kiln.SyncSet("counts", keep=5) as ss:
            ss.group("worker", replicas=2)
            files = {f"{n}.txt": "x\n" * n for n in range(1, 5)}
            counted = ss.each(ss.data("text", inline=files, shards=4), lines, start=start)
            ss.join(counted, lambda parts: parts)
        run = ss.submit()
        results.append((run.generation, run.result(60)))
        assert kiln.testing.run_set(ss).value == run.result()
    assert results == [(1, [1, 2, 3, 4]), (2, [101, 102, 103, 104])]
    again = run.replay()
    assert (again.generation, again.result(60)) == (3, [101, 102, 103, 104])
    assert again.status().replay_of == 2
    assert run.result() == again.result()  # what a run has seen of itself it keeps


def test_failed_part_of_a_run_runs_again(session: Any, tmp_path: Path) -> None:
    mended, ran = tmp_path / "mended", tmp_path / "ran"

    def price(number: int, *, mended: str, ran: str) -> int:
        if number == 2 and not Path(mended).exists():
            raise ValueError("no price")
        with Path(ran).open("a") as file:
            file.write(f"{number}\n")
        return number

    ss = kiln.SyncSet("mended")
    ss.group("worker")
    ss.join(ss.each([0, 1, 2], price, mended=str(mended), ran=str(ran)), lambda parts: parts)
    run = ss.submit()
    with pytest.raises(kiln.JobFailed, match="no price"):
        run.result(60)
    mended.touch()
    run.retry()
    assert run.result(60) == [0, 1, 2]
    assert (run.generation, run.status().run) == (1, 2)
    assert sorted(ran.read_text().split()) == ["0", "1", "2"]
    with pytest.raises(kiln.ConfigurationError, match="nothing of it failed"):
        run.retry()


def test_result_that_is_too_long_for_the_status_is_read_from_the_manager(
    server: up_server.UpServer, session: Any
) -> None:
    ss = kiln.SyncSet("long")
    ss.group("worker")
    ss.call(lambda: ["x" * 1000] * 20).options(name="write")
    run = ss.submit()
    unknown = server.kiln("result", "syncset/unknown", check=False)
    assert (unknown.returncode, "there is no SyncSet" in unknown.stderr) == (4, True)
    assert run.result(60) == ["x" * 1000] * 20
    assert json.loads(server.kiln("result", "syncset/long").stdout) == run.result()


def test_run_is_paused_scaled_and_killed(session: Any, tmp_path: Path) -> None:
    door = tmp_path / "door"
    run = waiting_set(door, replicas=1, most=2).submit()
    running(run)
    with pytest.raises(kiln.ConfigurationError, match="generation 1 is not over: replay"):
        run.replay()
    with pytest.raises(TimeoutError, match="kiln why syncset/waits"):
        run.result(0.05)
    run.scale("worker", 2)
    waiting.wait_until(lambda: run.status().groups["worker"].ready == 2, what="two workers")
    with pytest.raises(kiln.ConfigurationError, match=r"is 3, more than elastic.max, 2"):
        run.scale("worker", 3)
    with pytest.raises(kiln.ConfigurationError, match="no group 'other'; there are: worker"):
        run.scale("other", 1)
    run.suspend()
    door.touch()
    waiting.wait_until(
        lambda: run.steps()["waitFor"].state == "Succeeded", what="the step that runs goes on"
    )
    assert run.status().phase == sync_set.Phase.SUSPENDED
    assert run.steps()["after"].total == 0
    run.resume()
    assert run.result(60) == "after"
    run.cancel()  # it is over
    assert run.status().phase == sync_set.Phase.SUCCEEDED


def test_failed_run_raises_its_error(
    server: up_server.UpServer, session: Any, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    ss = waiting_set(door)
    first = ss.submit()
    running(first)
    second = ss.submit()
    with pytest.raises(kiln.JobFailed, match="a newer generation has taken its place") as raised:
        first.result(60)
    assert raised.value.reason == "Superseded"
    running(second)
    second.cancel()
    with pytest.raises(kiln.JobFailed) as raised:
        second.result(60)
    assert (raised.value.job, raised.value.phase) == ("waits", "Killed")

    broken = kiln.SyncSet("broken")
    broken.group("worker")
    broken.call(lambda: 1 / 0).options(name="divide")
    with pytest.raises(kiln.JobFailed, match=r"step divide: .*ZeroDivisionError"):
        broken.run(60)
    third = ss.submit()
    server.kiln("delete", "syncset/waits")
    with pytest.raises(kiln.JobFailed, match="is not there any more") as raised:
        third.result(60)
    assert raised.value.reason == "Deleted"
