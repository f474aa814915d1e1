"""docs/reference/sessions.md has the signatures, arguments and times of the code."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kilnwork.endpoints import endpoint_files
from kilnwork.sdk import home_supervisor, local, remote
from support import pages

PAGE = (pages.DOCS / "reference" / "sessions.md").read_text()
SECTIONS = pages.sections(PAGE, 2)
FLOWING = " ".join(PAGE.split())


def heading(function: Callable[..., Any]) -> str:
    """Return a signature as the page writes it: names and defaults."""
    words, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        default = "None" if parameter.default is None else repr(parameter.default)
        words.append(f"{parameter.name}={default}")
    return f"kiln.{function.__name__}({', '.join(words)})".replace("'", '"')


@pytest.mark.parametrize("function", [local.start, remote.connect])
def test_signatures_and_arguments_match_the_code(function: Callable[..., Any]) -> None:
    rows = pages.table(SECTIONS[heading(function)].partition("\n### ")[0])
    assert [row.key for row in rows] == [*inspect.signature(function).parameters][: len(rows)]
    assert len(rows) >= len(inspect.signature(function).parameters)


def test_times_and_files_match_the_code() -> None:
    assert f"A dispatcher without work exits after {home_supervisor.IDLE_S:g} s" in FLOWING
    files = pages.table(pages.sections(PAGE, 3)["The directory"])
    named = {name for row in files for name in row.key.replace("`", "").split(", ")}
    assert {endpoint_files.FILE, endpoint_files.TOKEN, "journal.db", "owner.lock", "blobs"} <= named
