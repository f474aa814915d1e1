"""Fields of a DataPond and of what a set takes from it: bounds, patterns and defaults."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond


def read(type_: type[Any], **fields: Any) -> Any:
    return msgspec.convert(fields, type_)


def test_an_empty_spec_has_the_documented_defaults() -> None:
    spec = read(data_pond.DataPondSpec)
    assert (spec.high_watermark, spec.low_watermark) == (0.9, 0.7)
    assert (spec.fetch.parallel, spec.fetch.from_peers) == (8, True)
    assert (spec.scrub_rate, spec.path, spec.capacity, spec.sources) == ("4Mi", None, None, ())


@pytest.mark.parametrize(
    ("field", "usable", "unusable"),
    [
        ("highWatermark", [0.05, 1], [0.04, 1.01]),
        ("lowWatermark", [0.05, 1], [0.04, 1.01]),
        ("path", ["/data"], ["data", ""]),
        ("fetch", [{"parallel": 1}, {"parallel": 64}], [{"parallel": 0}, {"parallel": 65}]),
        ("capacity", ["9" * 32], ["9" * 33]),
    ],
)
def test_fields_of_a_pond_have_bounds(
    field: str, usable: list[object], unusable: list[object]
) -> None:
    for value in usable:
        read(data_pond.DataPondSpec, **{field: value})
    for value in unusable:
        with pytest.raises(msgspec.ValidationError):
            read(data_pond.DataPondSpec, **{field: value})


@pytest.mark.parametrize("uri", ["https://a/", "http://a/", "file:///a", "kiln:", "kiln:job/x"])
def test_a_source_has_one_of_four_schemes(uri: str) -> None:
    assert read(data_pond.PondSource, name="a", uri=uri).uri == uri


@pytest.mark.parametrize("uri", ["ftp://a", "s3://a", "/a", "xhttps://a"])
def test_a_source_with_another_scheme_is_refused(uri: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(data_pond.PondSource, name="a", uri=uri)


@pytest.mark.parametrize(
    ("name", "is_usable"),
    [("a", True), ("a-1", True), ("1a", True), ("-a", False), ("a-", False), ("A", False),
     ("a" * 63, True), ("a" * 64, False), ("", False)],
)  # fmt: skip
def test_source_name_is_a_dns_label(name: str, is_usable: bool) -> None:  # noqa: FBT001
    if is_usable:
        assert read(data_pond.PondSource, name=name, uri="https://a/").name == name
    else:
        with pytest.raises(msgspec.ValidationError):
            read(data_pond.PondSource, name=name, uri="https://a/")


@pytest.mark.parametrize("by", ["files", "glob", "range", "hash"])
def test_shards_have_four_methods_and_default_to_bytes(by: str) -> None:
    scheme = read(data_pond.ShardScheme, by=by)
    assert (scheme.by, scheme.unit, scheme.count, scheme.patterns) == (by, "bytes", None, ())


@pytest.mark.parametrize(
    "fields",
    [{"by": "rows"}, {"by": "hash", "count": 0}, {"by": "hash", "count": 100_001},
     {"by": "range", "unit": "lines"}, {}],
)  # fmt: skip
def test_unknown_shard_methods_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(data_pond.ShardScheme, **fields)
