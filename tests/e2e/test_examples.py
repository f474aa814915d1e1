"""The examples in both homes. Each checks itself, so the tests assert that it prints ok."""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kilnwork.kit import ids, processes
from support import up_server as up_support
from support import waiting

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
COUNTER = "01-counter"
SCRIPTS = sorted([*EXAMPLES.glob("0[2-6]-*/*.py"), *EXAMPLES.glob("31-*/*.py")])
ON_A_SERVER = sorted(EXAMPLES.glob("[1234]*/run.sh"))
KINDS = ("tasks", "taskobjects", "jobs", "jobconfigs", "syncsets", "dataponds")


def name(script: Path) -> str:
    return script.parent.name


def run(script: Path, *arguments: str, environment: dict[str, str], directory: Path) -> str:
    """Run an example as its README says and return its output. It must succeed."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_list_covers_all_examples() -> None:
    assert [name(script) for script in SCRIPTS] == [
        "02-futures",
        "03-map-reduce",
        "04-recursion",
        "05-dag",
        "06-async",
        "31-map",
    ]
    assert [name(script) for script in ON_A_SERVER] == [
        "10-pod",
        "11-ephemeral",
        "12-images",
        "13-results",
        "14-workflow",
        "15-http",
        "16-custom-resource",
        "17-function",
        "18-mixed-graph",
        "19-external",
        "20-cron",
        "21-options",
        "22-parallel",
        "23-concurrency",
        "24-retries",
        "25-dependencies",
        "26-python-job",
        "27-pipeline",
        "28-secrets",
        "30-upload",
        "32-command",
        "33-reduce",
        "40-syncset",
        "41-syncset-python",
        "42-control-flow",
        "43-driver",
        "44-replay",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_example_runs_on_this_machine_and_leaves_nothing(script: Path, tmp_path: Path) -> None:
    mark = f"KILN_TEST_MARK={ids.new_uid()}"
    environment = {**os.environ, **dict([mark.split("=")])}
    assert run(script, environment=environment, directory=tmp_path).endswith("ok\n")
    waiting.wait_until(
        lambda: not processes.find_members(None, marker=mark), what="all processes have ended"
    )
    assert list(tmp_path.iterdir()) == []


class Shared:
    """One `kiln up` for all examples that need a server, started with the programs of the counter.

    Each example tidies up or has names of its own. `times`: seconds that each has taken.
    """

    def __init__(self, server: up_support.UpServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self.times: dict[str, float] = {}

    def run(
        self, argv: Sequence[str | Path], *, of: str, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of an example, in a directory of its own unless it is the counter's."""
        where = self._server.workdir
        if of != COUNTER:
            where = self._directory / of
            where.mkdir()
        begun = time.monotonic()
        done = subprocess.run(
            argv, capture_output=True, text=True, env=self._server.environment, cwd=where,
            timeout=200, check=False,
        )  # fmt: skip
        self.times[of] = self.times.get(of, 0.0) + time.monotonic() - begun
        assert done.returncode == code, done.stdout + done.stderr
        assert of == COUNTER or list(where.iterdir()) == []
        return done

    def kiln(self, line: str) -> None:
        """Run a line of the counter's README."""
        self.run(["kiln", *line.split()], of=COUNTER)

    def verify(self, *arguments: str, code: int = 0) -> str:
        done = self.run(["python3", "verify.py", *arguments], of=COUNTER, code=code)
        return done.stderr if code else done.stdout

    def names(self, plural: str, *prefixes: str) -> set[str]:
        """Return the names of existing objects with these prefixes."""
        found = {one["metadata"]["name"] for one in self._server.get(plural)["items"]}
        return {name for name in found if name.startswith(prefixes or "")}


@pytest.mark.timeout(600)
def test_all_examples_run_on_one_server(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Runs them as documented: `kiln up` in one terminal, the counter in another, the rest in a
    third.
    """
    home = shutil.copytree(EXAMPLES / COUNTER, tmp_path / "home")
    with (
        up_support.serving(home, slots=2) as server,
        concurrent.futures.ThreadPoolExecutor() as beside,
    ):
        shared = Shared(server, tmp_path)
        counting = beside.submit(_count, shared)
        for script in SCRIPTS:
            with subtests.test(name(script)):
                done = shared.run([sys.executable, script, "--connect"], of=name(script))
                assert done.stdout.endswith("ok\n")
        for script in ON_A_SERVER:
            with subtests.test(name(script)):
                assert shared.run([script], of=name(script)).stdout.endswith("ok\n")
        with subtests.test(COUNTER):
            counting.result()
        with subtests.test("no object is left"):
            waiting.wait_until(
                lambda: not any(shared.names(plural) for plural in KINDS),
                what=f"nothing is left of {KINDS}",
            )
    print({of: round(seconds, 1) for of, seconds in shared.times.items()})


def _count(shared: Shared) -> None:
    """Run every line of the counter's README that a user would copy."""
    shared.kiln("apply -f cluster.yaml")
    assert "51 tasks are missing: task-0" in shared.verify("--timeout", "1", code=1)
    if shutil.which("curl"):
        shared.kiln("run --cluster counter --name curl-counter -- sh start.sh")
        assert "51 tasks succeeded and the count is 50" in shared.verify("--spawned")
        assert shared.names("tasks", "curl", "task-") == {"curl-counter"}
        assert shared.names("taskobjects", "input", "task-") == set()
        shared.kiln("delete task/curl-counter")
    shared.kiln("apply -f start.yaml")
    assert "51 tasks succeeded and the count is 50" in shared.verify()
    assert shared.names("tasks", "task-") == {f"task-{n}" for n in range(51)}
    shared.kiln("delete -f start.yaml -f cluster.yaml")
    for plural in ("tasks", "taskobjects"):
        shared.kiln(f"delete {plural} {' '.join(shared.names(plural, 'task-'))}")


def test_of_an_operator_runs_as_that_of_any_project(tmp_path: Path) -> None:
    there = shutil.copytree(EXAMPLES / "40-operator", tmp_path / "project")
    alone = ["-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *alone, "--rootdir", str(there), str(there)],
        capture_output=True,
        text=True,
        cwd=there,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
