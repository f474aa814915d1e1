"""Functions of mappers are imported by name; an error names the remedy."""

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs.work import errors, function_import


def imported(name: str) -> object:
    return function_import.import_function(filejobs.Mapper(function=name))


def test_function_is_imported_by_path() -> None:
    assert imported("json:loads") is __import__("json").loads
    assert imported("collections:OrderedDict.fromkeys")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("json", "write package.module:name"),
        (":loads", "cannot be loaded"),
        ("json:", "write package.module:name"),
        ("json:nothing", "Workers find it as package.module:name"),
        ("no_such_module_here:f", "Workers find it as package.module:name"),
        ("json:__name__", "is a str, not a function"),
        ("os:getpid", "cannot be called with one argument"),
    ],
)
def test_unusable_function_reports_reason(name: str, why: str) -> None:
    with pytest.raises(errors.MapperUnusable, match=why):
        imported(name)


def test_function_from_blob_needs_a_session() -> None:
    mapper = filejobs.Mapper(function="m:f", code="sha256:" + "0" * 64)
    with pytest.raises(errors.MapperUnusable, match=r"m:f cannot be loaded: .*[^.]\. Workers"):
        function_import.import_function(mapper)
