"""Lines cut from bytes as they come, and what a line becomes."""

import hypothesis
import msgspec
import pytest
from hypothesis import strategies

from kilnwork.api import meta
from kilnwork.kube import errors, watch_stream


@hypothesis.given(
    strategies.lists(strategies.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))),
    strategies.data(),
)
def test_lines_are_the_same_however_they_arrive(
    lines: list[bytes], data: strategies.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(strategies.lists(strategies.integers(0, len(stream)), max_size=10)))
    cutter = watch_stream.Cutter()
    got: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += cutter.feed(stream[begin:end])
    assert got == [line for line in lines if line]


def test_line_above_the_limit_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_stream, "MAX_LINE", 100)
    cutter = watch_stream.Cutter()
    assert cutter.feed(b"x" * 90) == []
    with pytest.raises(errors.Unavailable, match="without end"):
        cutter.feed(b"x" * 20)


def test_numbers_in_texts_are_read_and_unknown_fields_ignored() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","generation":"3","new":1}},"x":2}'
    found = watch_stream.change(line, meta.Partial).object
    assert found is not None
    assert found.metadata.generation == 3


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"ADDED"}', b"null"])
def test_garbage_is_an_error_of_the_server(line: bytes) -> None:
    with pytest.raises(errors.Unavailable, match="cannot read the watch"):
        watch_stream.change(line, dict)


def test_errors_in_the_stream_keep_their_class() -> None:
    for code, kind in ((410, errors.Expired), (403, errors.Forbidden), (500, errors.Unavailable)):
        line = msgspec.json.encode({"type": "ERROR", "object": {"code": code, "message": "m"}})
        with pytest.raises(kind, match="m"):
            watch_stream.change(line, dict)
