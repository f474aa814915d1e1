"""Outputs of a part: lines, reports of bad records, counts; stored only when finished."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from kilnwork.data import errors as data_errors
from kilnwork.data.stores import local
from kilnwork.jobs.work import errors, output_writer


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path)


def opened(store: local.LocalStore, *, refuse: bool = False) -> output_writer.Outputs:
    def sink(key: str) -> output_writer.Sink:
        return output_writer.Sink(store.writer(key), key)

    return output_writer.Outputs(sink("out"), lambda: sink("bad"), refuse=refuse)


def read(store: local.LocalStore, key: str) -> bytes:
    return b"".join(store.read(key))


def test_lines_are_written_in_order(store: local.LocalStore) -> None:
    with opened(store) as out:
        out.results([b"1", b"2"])
        out.results([])
        out.printed(b"3\n4\n")
        out.copy([b"5\n", b"6\n"], 2)
        file, bad = out.finish()
    assert read(store, "out") == b"1\n2\n3\n4\n5\n6\n"
    assert (file.key, file.lines, file.bytes) == ("out", 6, 12)
    assert file.sha256 == hashlib.sha256(b"1\n2\n3\n4\n5\n6\n").hexdigest()
    assert bad is None


def test_bad_records_are_reported_and_counted(store: local.LocalStore) -> None:
    with opened(store) as out:
        out.bad(3, "r" * 2000, b"\xff", input_=True)
        out.copy_errors([b"{}\n"], 1)
        out.succeeded, out.skipped = 2, 4
        assert (out.records.total, out.records.failed) == (7, 1)
        _, bad = out.finish()
    assert bad is not None
    assert bad.lines == 2
    first = json.loads(read(store, "bad").splitlines()[0])
    assert first["line"] == 3
    assert first["reason"] == "r" * output_writer.MAX_REASON
    assert base64.b64decode(first["base64"]) == b"\xff"


def test_outputs_without_finish_leave_nothing(store: local.LocalStore) -> None:
    with opened(store) as out:
        out.results([b"1"])
        out.bad(1, "why", b"x", input_=False)
    for key in ("out", "bad"):
        with pytest.raises(data_errors.ObjectMissing):
            store.head(key)


def test_bad_record_raises_if_refused(store: local.LocalStore) -> None:
    with opened(store, refuse=True) as out:
        with pytest.raises(errors.RecordsRefused, match="line 7: why") as refused:
            out.bad(7, "why", b"x", input_=True)
        assert refused.value.input
        assert out.failed == 1


def test_text_is_reported_unchanged() -> None:
    assert json.loads(output_writer.report(1, "why", b"plain")) == {
        "line": 1, "reason": "why", "raw": "plain",
    }  # fmt: skip
