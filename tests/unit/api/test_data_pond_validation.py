"""Rules for DataPonds beyond their schema."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, data_pond_validation


def fields(**spec: Any) -> list[str]:
    pond = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, data_pond.DataPond)
    return [field for field, _ in data_pond_validation.problems(pond)]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, []),
        ({"path": "/var/lib/pond"}, []),
        ({"path": "/usr/"}, ["spec.path"]),
        ({"path": "/data/../etc"}, ["spec.path"]),
        ({"path": "/"}, ["spec.path"]),
        ({"capacity": "1Gi"}, []),
        ({"capacity": "0"}, ["spec.capacity"]),
        ({"capacity": "much"}, ["spec.capacity"]),
        ({"scrubRate": "0"}, []),
        ({"scrubRate": "500m"}, ["spec.scrubRate"]),
        ({"scrubRate": "-1"}, ["spec.scrubRate"]),
        ({"highWatermark": 0.5, "lowWatermark": 0.6}, ["spec.lowWatermark"]),
    ],
)
def test_invalid_spec_fields_are_refused(spec: dict[str, Any], found: list[str]) -> None:
    assert fields(**spec) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"uri": "https://example.org/a"}, []),
        ({"uri": "file:///data"}, []),
        ({"uri": "kiln:"}, []),
        ({"uri": "kiln:f-1/nowhere"}, ["uri"]),
        ({"uri": "file://host/data"}, ["uri"]),
        ({"uri": "file:///data/%2E%2E/etc"}, ["uri"]),
        ({"uri": "file:///data", "secretName": "s"}, ["secretName"]),
        ({"uri": "https://u:p@example.org/"}, ["uri"]),
        ({"uri": "https://example.org/#a"}, ["uri"]),
        ({"uri": "https://example.org:0/"}, ["uri"]),
        ({"uri": "https://example.org:x/"}, ["uri"]),
        ({"uri": "https://a/", "allowAddresses": ["10.0.0.0/8", "a"]}, ["allowAddresses[1]"]),
    ],
)
def test_invalid_sources_are_refused(source: dict[str, Any], found: list[str]) -> None:
    assert fields(sources=[{"name": "s", **source}]) == [f"spec.sources[0].{one}" for one in found]


def test_duplicate_source_name_is_refused() -> None:
    sources = [{"name": "s", "uri": "file:///a"}, {"name": "s", "uri": "file:///b"}]
    assert fields(sources=sources) == ["spec.sources[1].name"]
