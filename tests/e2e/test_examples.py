"""The examples in both homes: each checks itself, so what is asserted here is that it says ok."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.kit import ids, processes
from support import up as up_support
from support import waiting

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCRIPTS = sorted([*EXAMPLES.glob("0[2-6]-*/*.py"), *EXAMPLES.glob("31-*/*.py")])
ON_A_SERVER = sorted([*EXAMPLES.glob("1*/run.sh"), *EXAMPLES.glob("3*/run.sh")])


def name(script: Path) -> str:
    return script.parent.name


def run(script: Path, *arguments: str, environment: dict[str, str], folder: Path) -> str:
    """Run an example as its README says; what it prints. It must end well."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_these_are_all() -> None:
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
        "13-results",
        "30-upload",
        "32-command",
        "33-reduce",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_an_example_runs_on_this_machine_and_leaves_nothing(script: Path, tmp_path: Path) -> None:
    mark = f"KILN_TEST_MARK={ids.new_uid()}"
    environment = {**os.environ, **dict([mark.split("=")])}
    assert run(script, environment=environment, folder=tmp_path).endswith("ok\n")
    waiting.wait_until(
        lambda: not processes.belonging(None, marker=mark), what="all processes have ended"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.Up]:
    """One `kiln up` for all examples, since they only add tasks to it."""
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        yield made


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_an_example_runs_unchanged_on_kiln_up(
    script: Path, server: up_support.Up, tmp_path: Path
) -> None:
    done = run(script, "--connect", environment=server.environment, folder=tmp_path)
    assert done.endswith("ok\n")


@pytest.mark.parametrize("script", ON_A_SERVER, ids=name)
def test_an_example_in_bash_runs_on_kiln_up(
    script: Path, server: up_support.Up, tmp_path: Path
) -> None:
    done = subprocess.run(
        [script], capture_output=True, text=True, env=server.environment, cwd=tmp_path, timeout=50,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n")
    assert list(tmp_path.iterdir()) == []


def test_the_test_of_an_operator_runs_as_that_of_any_project(tmp_path: Path) -> None:
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
