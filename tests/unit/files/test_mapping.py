"""`files.map` in the test's own process: what a function gets, and what comes back."""

import codecs
import dataclasses
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

import kilnwork as kiln
from kilnwork import files
from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors

RECORDS = [{"id": number, "value": number * 1.5} for number in range(1, 101)]


@pytest.fixture(autouse=True)
def inline() -> Iterator[kiln.testing.InlineSession]:
    """A session whose tasks run when a caller waits for them."""
    with kiln.testing.inline() as session:
        yield session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "records.jsonl"
    found.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return found


@dataclasses.dataclass
class Point:
    x: int


def same(record: Any) -> Any:
    return record


def half(record: dict[str, Any]) -> float:
    if record["id"] % 10 == 0:
        raise ValueError(f"no {record['id']}")
    return float(record["value"]) / 2


def test_results_come_in_the_order_of_the_file(path: Path) -> None:
    mapped = files.map(path, same, items_per_part=7)
    assert len(mapped.parts) == 15
    assert list(mapped) == RECORDS
    assert list(mapped) == RECORDS, "as often as one likes"


def test_bad_records_are_put_aside_and_counted(path: Path) -> None:
    mapped = files.map(path, half, items_per_part=30)
    assert len(list(mapped)) == 90
    assert [error["line"] for error in mapped.errors] == list(range(10, 101, 10))
    assert mapped.errors[0]["reason"].startswith("ValueError: no 10 (test_mapping.py:")
    assert json.loads(mapped.errors[0]["raw"]) == RECORDS[9]
    assert mapped.records == filejobs.Records(total=100, succeeded=90, failed=10, skipped=0)


def test_bad_records_are_a_sequence(path: Path) -> None:
    found = files.map(path, half, items_per_part=30).errors
    assert len(found) == 10
    assert [each["line"] for each in found[2:8:3]] == [30, 60]
    assert [each["line"] for each in found[::-1]] == list(range(100, 0, -10))
    assert (found[-1]["line"], found[9]["line"]) == (100, 100)
    for beyond in (10, -11):
        with pytest.raises(IndexError, match="there are 10 bad records"):
            found[beyond]
    assert repr(found).startswith("<BadRecords: 10, the first in line 10: ValueError: no 10 (")
    assert repr(files.map(path, same).errors) == "<BadRecords: none>"
    assert found == list(found)
    assert found != []


def test_allowed_results_of_a_function(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("none\nstr\nbytes\ndict\nclass\nseveral\n")

    def by_name(line: str) -> Any:
        return {
            "none": None, "str": "a line", "bytes": b"\xc3\xa9", "dict": {"a": (1, 2)},
            "class": Point(3), "several": iter(["one", {"two": 2}]),
        }[line]  # fmt: skip

    mapped = files.map(path, by_name)
    assert list(mapped) == ["a line", b"\xc3\xa9", {"a": [1, 2]}, {"x": 3}, "one", {"two": 2}]
    assert b"".join(mapped.lines()) == (b'a line\n\xc3\xa9\n{"a":[1,2]}\n{"x":3}\none\n{"two":2}\n')
    assert mapped.records.skipped == 1


def test_a_str_of_json_lines_is_json(path: Path) -> None:
    mapped = files.map(path, lambda record: f"é {record['id']}")
    assert next(iter(mapped)) == "é 1"
    assert next(mapped.lines()) == '"é 1"\n'.encode()


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_every_format_gives_its_records(tmp_path: Path, pack: Any) -> None:
    inputs = {
        "a.jsonl": b'{"a":1}\r\n\n[2]\n"x"',
        "a.txt": "\ufeffone\n\ntwo\r\nthree\x0c four\n".encode(),
        "a.csv": b'x,y\n1,"a\nb"\n2,"say ""hi"""\n',
        "a.tsv": b"x\ty\n1\t2\n",
        "a.json": b'[{"a": 1}, [2], "x"]',
    }
    expected: dict[str, list[Any]] = {
        "a.jsonl": [{"a": 1}, [2], "x"],
        "a.txt": ["one", "two", "three\x0c four"],
        "a.csv": [{"x": "1", "y": "a\nb"}, {"x": "2", "y": 'say "hi"'}],
        "a.tsv": [{"x": "1", "y": "2"}],
        "a.json": [{"a": 1}, [2], "x"],
    }
    for name, content in inputs.items():
        path = tmp_path / f"{name}.gz"
        path.write_bytes(pack(content))
        form = "json" if name == "a.json" else None
        assert list(files.map(path, same, format=form, items_per_part=1)) == expected[name], name


def test_batches_are_lists_of_records(path: Path) -> None:
    def counted(records: list[Any]) -> list[tuple[int, int]]:
        return [(record["id"], len(records)) for record in records]

    mapped = files.map(path, counted, batch=30, items_per_part=50)
    assert [number for number, _ in mapped] == list(range(1, 101))
    assert {count for _, count in mapped} == {30, 20}


def test_a_command_maps_the_lines_of_each_part(path: Path) -> None:
    mapped = files.map(path, ["sed", "s/id/ID/"], items_per_part=40)
    assert "".join(f"{line}\n" for line in mapped) == path.read_text().replace("id", "ID")


def test_a_task_is_mapped_by_its_function(path: Path) -> None:
    @kiln.task(retries=3)
    def number(record: dict[str, Any]) -> int:
        return int(record["id"])

    assert sum(files.map(path, number)) == 5050


async def _twice(record: dict[str, Any]) -> int:
    return 2 * int(record["id"])


def test_an_async_function_is_mapped_too(path: Path) -> None:
    assert sum(files.map(path, _twice)) == 10100


def test_the_file_is_written_when_it_is_whole(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    size = files.map(path, lambda record: record["id"], items_per_part=9).write(out)
    assert out.read_text() == "".join(f"{number}\n" for number in range(1, 101))
    assert size == out.stat().st_size
    out.unlink()
    with pytest.raises(files.RecordsRefused):
        files.map(path, half, bad_records="fail", items_per_part=9).write(out)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["records.jsonl"]


def test_links_and_pipes_stay_what_they_are(path: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("out.jsonl")
    files.map(path, same).write(link)
    assert link.is_symlink()
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1]) == RECORDS[-1]
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.map(path, lambda record: record["id"]).write(pipe)
    assert os.read(reader, 1 << 16).startswith(b"1\n2\n")
    os.close(reader)
    assert pipe.is_fifo()


def test_too_many_bad_records_stop_the_map(path: Path) -> None:
    with pytest.raises(
        kiln.TooManyFailed, match="2 of 100 records are bad, more than max_failed=1"
    ):
        list(files.map(path, half, items_per_part=10, max_failed=1))
    assert len(list(files.map(path, half, items_per_part=10, max_failed="10%"))) == 90
    with pytest.raises(kiln.TooManyFailed, match=r"max_failed=9.5%"):
        list(files.map(path, half, items_per_part=10, max_failed="9.5%"))


def test_bad_records_of_a_stopped_map_can_be_read(path: Path) -> None:
    mapped = files.map(path, half, items_per_part=10, max_failed=1)
    with pytest.raises(kiln.TooManyFailed):
        list(mapped)
    assert [each["line"] for each in mapped.errors] == [10, 20]


def test_a_part_that_is_not_at_fault_is_tried_again(path: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def gated(record: dict[str, Any]) -> Any:
        if not gate.exists():
            gate.touch()
            raise files.FailPart("the gate was shut")
        return record

    assert list(files.map(path, gated)) == RECORDS
    gate.unlink()
    with pytest.raises(files.FailPart, match="the gate was shut"):
        list(files.map(path, gated, retries=0))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b""),
        ("a.csv", b"id,name\n"),
        ("a.json.gz", gzip.compress(b"", mtime=0)),
        ("a.txt", codecs.BOM_UTF8),
    ],
)
def test_an_empty_file_is_refused_as_an_upload_is(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(data_errors.InputRefused, match=f"{name} is empty"):
        files.map(path, same)


def test_repr_shows_progress_and_methods(path: Path) -> None:
    mapped = files.map(path, half, items_per_part=50)
    assert repr(mapped) == (
        f"<Mapped {path}: 0 of 100 records, 0 of them bad; 0 of 2 parts are over; "
        "iterate it, .write(path), .errors, .records>"
    )
    assert "100 of 100 records, 10 of them bad; 2 of 2 parts are over" in repr(mapped.wait())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"items_per_part": 0}, "files.map: items_per_part: "),
        ({"bytes_per_part": -1}, "files.map: bytes_per_part: "),
        ({"batch": 0}, "files.map: batch: "),
        ({"format": "xml"}, "files.map: format: Invalid enum value 'xml'"),
        ({"delimiter": ";;"}, "files.map: delimiter: "),
        ({"blank": "no"}, "files.map: blank: "),
        ({"bad_records": "drop"}, "files.map: bad_records: "),
        ({"max_failed": "some"}, "files.map: max_failed='some': "),
        ({"max_failed": -1}, "files.map: max_failed=-1: "),
        ({"retries": -1}, "retries=-1"),
    ],
)
def test_options_that_cannot_be_are_named(path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(kiln.BadOption) as caught:
        files.map(path, same, **given)
    assert said in str(caught.value)


@pytest.mark.parametrize("function", [5, [], ["a", 1], "cat", None])
def test_error_for_an_invalid_mapper_names_valid_ones(path: Path, function: Any) -> None:
    with pytest.raises(kiln.BadOption, match="neither a function nor a list of words"):
        files.map(path, function)


def test_missing_or_wrong_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(FileNotFoundError):
        files.map(path, same)
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(data_errors.InputRefused, match="zip"):
        files.map(path, same)
    path.write_text('{"a": 1}\n')
    with pytest.raises(data_errors.InputRefused, match="array"):
        files.map(path, same, format="json")


def test_a_file_that_changed_is_not_mapped_half(path: Path) -> None:
    mapped = files.map(path, same, items_per_part=50, retries=0)
    path.write_text(path.read_text().replace("1.5", "2.5"))
    with pytest.raises(kiln.DataError):
        list(mapped)


LINES = strategies.lists(
    strategies.text(strategies.characters(exclude_characters="\n\r", codec="utf-8")), max_size=30
)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(LINES, strategies.integers(1, 12), strategies.booleans())
def test_any_text_gives_its_lines(
    tmp_path: Path,
    lines: list[str],
    items: int,
    ended: bool,  # noqa: FBT001
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path = tmp_path / "any.txt"
    path.write_bytes(text.encode())
    hypothesis.assume(text not in ("", "\ufeff"))  # which are empty
    found = list(files.map(path, same, blank="record", items_per_part=items))
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert found == expected
