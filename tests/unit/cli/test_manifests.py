"""Manifests: read like kubectl does, rejected with file, line and column."""

import io
import sys
from pathlib import Path

import pytest

from kilnwork.cli import errors, manifests

TASK = "apiVersion: kilnwork.dev/v1alpha1\nkind: Task\nmetadata: {name: a}\n"


def read(text: str) -> list[manifests.Manifest]:
    return list(manifests.parse(text, source="x.yaml"))


def body(text: str) -> dict[str, object]:
    return read(TASK + text)[0].body


def test_documents_are_numbered_by_line() -> None:
    found = read(f"# first\n---\n{TASK}---\n---\n{TASK}")
    assert [m.place for m in found] == ["x.yaml:3", "x.yaml:8"]


def test_times_and_sexagesimals_stay_text() -> None:
    spec = body("spec: {killTimestamp: 2026-01-02T03:04:05Z, at: 1:30, day: 2026-01-02}")["spec"]
    assert spec == {"killTimestamp": "2026-01-02T03:04:05Z", "at": "1:30", "day": "2026-01-02"}


def test_numbers_are_read_as_json_and_octal() -> None:
    data = body("data: {a: 1, b: 1e3, c: 0x10, d: 0644, e: .5, f: -7, g: 1_000}")["data"]
    assert data == {"a": 1, "b": 1000.0, "c": 16, "d": 420, "e": 0.5, "f": -7, "g": 1000}


def test_keys_become_text() -> None:
    assert body("data: {1: x, true: y}")["data"] == {"1": "x", "true": "y"}


def test_lists_and_arrays_are_split_into_items() -> None:
    one = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}'
    as_list = f'{{"apiVersion": "v1", "kind": "List", "items": [{one}, {one}]}}'
    assert len(read(as_list)) == 2
    assert len(read(f"[{one},\n\t{one}]")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "x.yaml:2:1: malformed YAML: did not find expected"),
        (f"{TASK}---\na: b: c\n", "x.yaml:5:5: malformed YAML: mapping values are not allowed"),
        ("a:\n\t- b\n", "x.yaml:2:1: malformed YAML"),
        (f"{TASK}kind: Task\n", "x.yaml:4:1: malformed YAML: key 'kind' is already set"),
        ("just text", "x.yaml:1: an object is expected, not str"),
        ("kind: Task\nmetadata: {}\n", "x.yaml:1: the object has no apiVersion"),
        ("apiVersion: v1\nkind: Pod\n", "x.yaml:1: the object has no metadata"),
        (f"{TASK}data: .nan\n", "not a JSON number"),
        (f"{TASK}data: !!python/object:os.system {{}}\n", "x.yaml:4:7: malformed YAML: could not"),
        (f"{TASK}data: &a [*a]\n", "nested deeper"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        read(text)
    assert message in str(caught.value)


def test_valid_documents_are_yielded_before_the_error() -> None:
    found = manifests.parse(f"{TASK}---\na: b: c\n", source="x.yaml")
    assert next(found).body["kind"] == "Task"
    with pytest.raises(errors.InvalidInput):
        next(found)


def test_directory_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(TASK.replace("name: a", "name: b"))
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}'
    )
    (tmp_path / "note.txt").write_text("no object")
    names = [m.body["metadata"]["name"] for m in manifests.read((str(tmp_path),))]
    assert names == ["c", "b"]


def test_missing_and_empty_sources_are_errors(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match=r"gone\.yaml: No such file"):
        list(manifests.read((str(tmp_path / "gone.yaml"),)))
    with pytest.raises(errors.InvalidInput, match=r"holds no \.yaml"):
        list(manifests.read((str(tmp_path),)))
    with pytest.raises(errors.InvalidInput, match="URLs are not read"):
        list(manifests.read(("https://example.invalid/x.yaml",)))


@pytest.mark.parametrize("data", [b"\xff", b"a: \xe9"])
def test_text_that_is_not_utf_8_is_an_error_with_its_source(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", stdin)
    (tmp_path / "a.yaml").write_bytes(data)
    with pytest.raises(errors.InvalidInput, match="standard input: not UTF-8 text"):
        list(manifests.read(("-",)))
    with pytest.raises(errors.InvalidInput, match=r"a\.yaml: not UTF-8 text"):
        list(manifests.read((str(tmp_path),)))


def test_standard_input_has_the_line_ends_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ü\r\nb".encode())))
    assert manifests.read_stdin() == "ü\nb"
