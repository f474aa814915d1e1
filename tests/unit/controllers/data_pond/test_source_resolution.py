"""Only sources that a pond declares, and paths within them, can be read."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import source_resolution
from kilnwork.data import errors

SPEC = data_pond.DataPondSpec(
    sources=(
        data_pond.PondSource(name="web", uri="https://x/base/", allow_addresses=("10.0.0.0/8",)),
        data_pond.PondSource(name="disk", uri="file:///data"),
        data_pond.PondSource(name="work", uri="kiln:"),
    )
)


def order(**given: Any) -> Any:
    return source_resolution.order(SPEC, msgspec.convert(given, data_pond.SnapshotSource))


@pytest.mark.parametrize(
    ("given", "uri", "below"),
    [
        ({"source": "disk"}, "file:///data", 0),
        ({"source": "disk", "path": "a b/c"}, "file:///data/a%20b/c", 2),
        ({"uri": "https://x/base/a"}, "https://x/base/a", 1),
        ({"source": "web", "path": "a", "paths": ["b"]}, "https://x/base/a/", 1),
        ({"files": "f-1"}, "kiln:f-1/results", 0),
        ({"source": "work", "path": "f-1/parts"}, "kiln:f-1/parts", 0),
    ],
)
def test_source_order_for_each_kind_of_source(given: dict[str, Any], uri: str, below: int) -> None:
    made = order(**given)
    assert (made.uri, made.below) == (uri, below)


def test_order_has_the_allowed_addresses_of_the_source() -> None:
    assert order(source="web", path="a").allow == ("10.0.0.0/8",)
    assert order(inline={"a": "1"}).inline == {"a": "1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "disks"}, "from.source: 'disks' is none of the pond's: web, disk, work"),
        ({"uri": "file:///database"}, "from.uri: 'file:///database' is not below"),
        ({"uri": "file:///data/%2E%2E/etc"}, "from.uri"),
        ({"files": "f-1", "path": "secrets"}, "from.path"),
        ({"output": {"set": "s", "name": "o"}}, "from.output"),
        ({}, "from: must have exactly one"),
    ],
)
def test_invalid_sources_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.SourceRefused) as refused:
        order(**given)
    assert message in str(refused.value)
