"""Lookup of the jobs of a module, and errors with file and line."""

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import errors, job_modules

JOBS = """\
import kilnwork as kiln


@kiln.job
def {name}(day: str = "today") -> str:
    return day
"""

LOCAL = """\
import kilnwork as kiln


def outer():
    @kiln.job
    def a() -> None: ...


outer()
"""


@pytest.fixture(autouse=True)
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore imported modules and the import path."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def found(text: str) -> list[str]:
    declared = job_modules.load_module(text, labels={})
    return [body["metadata"]["name"] for body in declared.bodies]


def refusal(text: str) -> str:
    with pytest.raises(errors.InvalidInput) as caught:
        job_modules.load_module(text, labels={})
    return str(caught.value)


def call_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]["taskTemplate"]["call"]
    return found


def test_file_is_uploaded_and_module_is_not() -> None:
    write("f2_jobs.py", JOBS.format(name="first") + JOBS.format(name="second_one"))
    by_name = job_modules.load_module("f2_jobs", labels={"team": "data"})
    body = by_name.bodies[1]
    assert body["metadata"]["name"] == "second-one"
    assert body["metadata"]["labels"] == {"team": "data", "kilnwork.dev/deployed-from": "f2_jobs"}
    assert call_of(body) == {"function": "f2_jobs:second_one", "kwargs": {"day": "${option.day}"}}
    assert by_name.code is None

    by_file = job_modules.load_module("f2_jobs.py", labels={"team": "data"})
    assert by_file.code is not None
    assert {call_of(body).pop("environment") for body in by_file.bodies} == {by_file.code.digest}
    assert by_file.bodies == by_name.bodies
    again = job_modules.load_module("f2_jobs.py", labels={})
    assert again.code == by_file.code
    assert sorted(path.name for path in Path().iterdir()) == ["f2_jobs.py"]


def test_file_in_a_package_has_its_full_name_and_uploads_the_package() -> None:
    write("f2_pack/__init__.py", "")
    write("f2_pack/helper.py", "x = 1\n")
    write("f2_pack/inner/__init__.py", "")
    write("f2_pack/inner/jobs.py", JOBS.format(name="inside"))
    declared = job_modules.load_module("f2_pack/inner/jobs.py", labels={})
    assert declared.module == "f2_pack.inner.jobs"
    assert names_in(declared) >= {"modules/f2_pack/helper.py", "modules/f2_pack/inner/jobs.py"}


def test_working_directory_is_uploaded() -> None:
    write("directory/f2_inside.py", JOBS.format(name="inside"))
    write("directory/data.txt", "1")
    for text in ("f2_inside", "directory/f2_inside.py"):
        declared = job_modules.load_module(text, labels={}, working_dir=Path("directory"))
        assert declared.module == "f2_inside"
        assert names_in(declared) == {"paths", "work/data.txt", "work/f2_inside.py"}


def names_in(declared: job_modules.DeclaredJobs) -> set[str]:
    assert declared.code is not None
    with zipfile.ZipFile(io.BytesIO(declared.code.body)) as archive:
        return set(archive.namelist())


def test_package_declares_only_the_jobs_of_its_modules() -> None:
    write("f2_other.py", JOBS.format(name="elsewhere"))
    write("f2_all/one.py", JOBS.format(name="one"))
    write("f2_all/__init__.py", "from f2_all.one import one\nfrom f2_other import elsewhere\n")
    assert found("f2_all") == ["one"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import kilnwork as kiln\n\n\n@kiln.job(retrys=3)\ndef a() -> None: ...\n",
         "bad.py:4: no option of kiln.job is called 'retrys': did you mean retries"),
        ("import kilnwork as kiln\n\n\n@kiln.job(schedule='61 * * * *')\ndef a() -> None: ...\n",
         "bad.py:4: a: its JobConfig is not valid: spec.schedule.cron.expression"),
        ("x = 1\ny = x / 0\n", "bad.py:2: ZeroDivisionError: division by zero"),
        ("x = (\n", "bad.py:1: '(' was never closed"),
        ("import f2_not_there\n", "bad.py:1: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "bad.py:1: SystemExit: 3"),
        ("x = 1\n", "declares no jobs"),
        (JOBS.format(name="a") + JOBS.format(name="A"), "bad.py:10: job 'a' is declared at"),
        (JOBS.format(name="a") + "b = a\ndel a\n", "bad.py:4: a: workers cannot import bad:a"),
        (LOCAL, "bad.py:5: outer.<locals>.a: workers cannot import"),
    ],
)  # fmt: skip
def test_errors_have_file_and_line(text: str, words: str) -> None:
    write("bad.py", text)
    assert words in refusal("bad.py")


def test_missing_module_or_file_is_rejected() -> None:
    assert "there is no such file" in refusal("f2_nothing.py")
    assert "there is no module 'f2_nothing'" in refusal("f2_nothing")
    assert "is not a module" in refusal("f2-nothing")
    write("json.py", "")
    assert "give the file another name" in refusal("json.py")
    write("msgspec.py", JOBS.format(name="hidden"))
    assert "has that name" in refusal("msgspec.py")
