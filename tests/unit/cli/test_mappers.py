"""Forms of `--mapper`, and errors for invalid ones."""

from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.cli import errors, mappers

SCORE = """
import json as notation
limit = 3
def score(record):
    return record
class Model:
    def call(self): ...
"""


def parsed(text: str | None = None, command: str | tuple[str, ...] = ()) -> filejobs.Mapper:
    return mappers.parse(text, command, batch=None, of="mapper").mapper


def refusal(
    text: str | None = None, command: str | tuple[str, ...] = (), of: str = "mapper"
) -> str:
    with pytest.raises(errors.InvalidInput) as caught:
        mappers.parse(text, command, batch=None, of=of)
    return str(caught.value)


def test_names_modules_and_programs_are_parsed() -> None:
    assert parsed("calculator") == filejobs.Mapper(builtin="calculator")
    assert parsed("pkg.mod:fn") == filejobs.Mapper(function="pkg.mod:fn")
    assert parsed(command="jq -c '.a b'") == filejobs.Mapper(command=("jq", "-c", ".a b"))
    assert parsed(command=("cut", "-f", "1")) == filejobs.Mapper(command=("cut", "-f", "1"))


def test_file_is_uploaded_with_its_function(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text(SCORE)
    for name in ("score", "Model.call", "limit", "notation"):
        found = mappers.parse(f"{file}:{name}", (), batch=500, of="mapper")
        assert found.mapper == filejobs.Mapper(function=f"score:{name}", batch_records=500)
        assert found.file == file


def test_missing_function_error_lists_the_functions_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text(SCORE)
    assert refusal(f"{file}:skore") == f"{file} has no function 'skore'; it has: Model, score"


def test_file_with_a_star_import_is_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text("from math import *\n")
    assert mappers.parse(f"{file}:sqrt", (), batch=None, of="mapper").file == file


@pytest.mark.parametrize("text", ["score", ":f", "a:b:", "mod:2", "pkg/mod:f", "calculator:", "x:"])
def test_invalid_mapper_error_lists_the_allowed_forms(text: str) -> None:
    said = refusal(text)
    assert said.startswith(f"--mapper {text}: ")
    assert "package.module:function" in said or "not a module" in said


def test_missing_mapper_error_lists_the_allowed_forms() -> None:
    assert "calculator" in refusal()
    assert "path/to/file.py:function" in refusal()


def test_two_mappers_are_rejected() -> None:
    assert refusal("identity", "cat") == (
        "one mapper is enough: name a function or a program, not both"
    )


def test_calculator_reduces_nothing() -> None:
    assert refusal("calculator", of="reducer").startswith("--reducer calculator: ")
    assert mappers.parse("identity", (), batch=None, of="reducer").mapper.builtin == "identity"


def test_batch_of_a_program_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="--batch is for Python functions"):
        mappers.parse(None, ("cat",), batch=5, of="mapper")
    with pytest.raises(errors.InvalidInput, match="identity is built in"):
        mappers.parse("identity", (), batch=5, of="mapper")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("json.py", "def f(r): ...\n", "give the file another name"),
        ("my-mapper.py", "def f(r): ...\n", "give the file another name"),
        ("broken.py", "def f(r)\n", "no Python"),
    ],
)
def test_unimportable_file_names_are_rejected(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert said in refusal(f"{file}:f")
    assert f"there is no file {tmp_path}/nowhere.py" in refusal(f"{tmp_path / 'nowhere.py'}:f")
    assert "score.py:FUNCTION" in refusal("score.py")


def test_program_with_an_open_quote_is_rejected() -> None:
    assert "No closing quotation" in refusal(command="jq '.x")
