"""docs/reference/jobs-api.md: every call, parameter and field is described."""

import re
from pathlib import Path

import msgspec

from kilnwork.server.jobs import documents, ignored_fields, openapi, parameter_reference, parameters

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "jobs-api.md"


def _rows(heading: str) -> list[str]:
    """Return the first cells of the tables below a heading."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]


def test_every_call_is_listed() -> None:
    listed = set(re.findall(r"`([A-Z]+ /[^`]*)`", " ".join(_rows("Calls"))))
    page = openapi.document()
    served = {
        f"{method.upper()} {path}"
        for path, item in page["paths"].items()
        for method in item
        if method not in ("parameters", "head") and path != "/jobs/openapi.json"
    }
    assert listed == served


def test_every_parameter_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", " ".join(_rows("Submit a file"))))
    assert listed == {*parameters.KNOWN, "file"}


def test_table_of_parameters_is_that_of_the_code() -> None:
    page = PAGE.read_text()
    assert parameter_reference.written(page) == page, "run `make docs`"


def test_every_header_with_a_warning_is_named() -> None:
    page = PAGE.read_text().lower()
    for name in ignored_fields.HEADERS:
        assert f"`{name}`" in page or (name.startswith("upload-") and "`upload-*`" in page), name


def test_every_field_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", " ".join(_rows("A job"))))
    fields = {field.encode_name for field in msgspec.structs.fields(documents.JobDocument)}
    assert fields - listed == {"runningOnAci", "version"}  # in another page; beside `run`
    assert listed <= fields
