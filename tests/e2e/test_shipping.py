"""Code that a `kiln up` does not have is uploaded with the session: directories, modules, files."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=1) as made:
        yield made


PROGRAM = """
import kilnwork as kiln
from pathlib import Path
from lib_of_ours import words

@kiln.task
def read(name):
    return Path(name).read_text()

@kiln.task
def count(part):
    import lib_of_ours.late
    return sum(len(words(line)) for line in part) + lib_of_ours.late.NOTHING

@kiln.task
def parent(name):
    return read.submit(name).result(), sum(f.result() for f in count.map(kiln.split(name, 3)))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory that is importable here and deleted before workers run."""
    directory = tmp_path / "project"
    (directory / "lib_of_ours").mkdir(parents=True)
    (directory / "program_of_ours.py").write_text(PROGRAM)
    (directory / "lib_of_ours" / "__init__.py").write_text("def words(line): return line.split()")
    (directory / "lib_of_ours" / "late.py").write_text("NOTHING = 0")
    (directory / "in.txt").write_text("a b\nc\n\nd e f\n")
    monkeypatch.syspath_prepend(directory)
    yield directory
    for name in [name for name in sys.modules if "of_ours" in name]:
        del sys.modules[name]


def program() -> Any:
    return importlib.import_module("program_of_ours")


def test_directory_is_uploaded(server: up_support.UpServer, project: Path) -> None:
    ours = program()
    with kiln.connect(server.data, working_dir=project):
        project.rename(project.with_name("gone"))
        assert ours.read.submit("in.txt").result(30) == "a b\nc\n\nd e f\n"
        assert ours.parent.submit("in.txt").result(30) == ("a b\nc\n\nd e f\n", 6)


def test_data_directory_inside_is_not_uploaded(server: up_support.UpServer) -> None:
    with (
        pytest.warns(UserWarning, match=f"{server.data} is a data directory of kiln"),
        kiln.connect(server.data, working_dir=server.data.parent) as opened,
    ):
        assert opened.environment is not None


def test_changed_code_is_another_environment(server: up_support.UpServer, project: Path) -> None:
    ours = program()
    with kiln.connect(server.data, working_dir=project):
        assert ours.parent.submit("in.txt").result(30)[1] == 6
    (project / "lib_of_ours" / "late.py").write_text("NOTHING = 100")
    with kiln.connect(server.data, working_dir=project):
        assert ours.parent.submit("in.txt").result(30)[1] == 206


def test_modules_are_uploaded(server: up_support.UpServer, project: Path) -> None:
    ours = program()
    with kiln.connect(server.data, modules=["lib_of_ours", "program_of_ours"]):
        parts = kiln.split(project / "in.txt", 3)
        project.rename(project.with_name("gone"))
        assert sum(kiln.get(ours.count.map(parts), timeout=20)) == 6


def test_missing_module_error_has_a_remedy(server: up_support.UpServer, project: Path) -> None:
    ours = program()
    with kiln.connect(server.data), pytest.raises(ModuleNotFoundError) as raised:
        ours.count.submit(["x"]).result(30)
    assert "lib_of_ours" in str(raised.value)
    (note,) = raised.value.__notes__
    assert "kiln.connect(…, working_dir='.')" in note
