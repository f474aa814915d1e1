"""What cloudpickle alone cannot send from a script: caches and the names of files."""

import functools
import inspect
from typing import Any

from kilnwork.sdk import serialization
from support import python_subprocess

MAIN = """
import functools, pathlib, subprocess, sys, urllib.parse
from kilnwork.sdk import serialization

directory, worker = pathlib.Path(sys.argv[1]), sys.argv[2]

@functools.lru_cache(maxsize=4, typed=True)
def model(name):
    "Loads it."
    print("loading")
    return len(name)

@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Shape:
    @functools.cached_property
    def area(self):
        "As it is."
        print("computing")
        return 12

    @functools.cache
    def sides(self):
        return 4

def predict(name):
    shape = Shape()
    parts = [model(name) + model(name), fibonacci(50), shape.area + shape.area, shape.sides()]
    known = model.cache_parameters(), model.__doc__, Shape.area.__doc__, model.__wrapped__.__name__
    return parts, known, urllib.parse.urlsplit("a://b").netloc

for name, function, argument in (("one", predict, "abc"), ("two", model, "abcd")):
    (directory / name).write_bytes(serialization.pack_by_value(function, function, along=False))
    subprocess.run([sys.executable, "-c", worker, directory / name, argument], check=True)
"""
WORKER = """
import pathlib, sys
from kilnwork.sdk import serialization

function = serialization.load_function(pathlib.Path(sys.argv[1]).read_bytes())
print(function(sys.argv[2]))
"""


def test_functions_and_properties_with_a_cache_come_along(tmp_path: object) -> None:
    said = python_subprocess.run(MAIN, str(tmp_path), WORKER).splitlines()
    assert said[:2] == ["loading", "computing"], "each once"
    values = "[6, 12586269025, 24, 4]"
    known = "({'maxsize': 4, 'typed': True}, 'Loads it.', 'As it is.', 'model')"
    assert said[2] == f"({values}, {known}, 'b')"
    assert said[3:] == ["loading", "4"]


def again(function: Any) -> Any:
    """What another process gets of what a lambda returns."""
    return serialization.load_function(
        serialization.pack_by_value(function, function, along=False)
    )()


@functools.cache
def double(number: int) -> int:
    return 2 * number


def test_importable_cached_function_is_pickled_by_name() -> None:
    assert again(lambda: double) is double


def test_local_cached_function_is_pickled_by_value() -> None:
    @functools.lru_cache(maxsize=7)
    def half(number: int) -> float:
        return number / 2

    found = again(lambda: half)
    assert found is not half
    assert found(3) == 1.5
    assert found.cache_parameters()["maxsize"] == 7


def test_functions_know_the_file_that_they_are_from() -> None:
    """Else tracebacks from another process show no lines."""

    def fail() -> None:
        raise LookupError

    sent = serialization.load_function(serialization.pack_by_value(fail, fail, along=False))
    assert sent.__code__ is not fail.__code__
    assert sent.__code__.co_filename == __file__
    assert "raise LookupError" in inspect.getsource(sent)
