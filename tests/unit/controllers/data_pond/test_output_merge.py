"""What tasks have written on several nodes becomes one snapshot; its parts stay there."""

from kilnwork.controllers.data_pond import model, output_merge
from support import ponds


def pinned(files: dict[str, bytes]) -> model.Pin:
    made = ponds.manifest_of(files)
    return model.Pin(state=model.PINNED, digest=made.digest, manifest=made, bytes=made.size)


EMPTY = model.Pin(state=model.FAILED, reason="SourceMissing", message="no file")


def test_merged_output_has_all_files_and_each_node_its_part() -> None:
    whole = output_merge.merge({"a": pinned({"1": b"x"}), "b": pinned({"2": b"yy"}), "c": EMPTY})
    assert whole.digest == ponds.manifest_of({"1": b"x", "2": b"yy"}).digest
    assert (whole.state, whole.bytes) == (model.PINNED, 3)
    assert whole.paths_by_node == {"a": ("1",), "b": ("2",)}


def test_missing_part_is_named() -> None:
    late = model.Pin(reason="AgentSilent", message="does not report")
    whole = output_merge.merge({"a": pinned({"1": b"x"}), "b": late})
    assert (whole.state, whole.message) == (model.PENDING, "node b: does not report")


def test_message_of_a_part_names_its_node_once() -> None:
    late = model.Pin(reason="Pinning", message="node b reads it")
    assert output_merge.merge({"b": late}).message == "node b reads it"


def test_failed_part_fails_the_output_even_if_parts_are_missing() -> None:
    bad = model.Pin(state=model.FAILED, reason="SourceRefused", message="a link")
    whole = output_merge.merge({"a": model.Pin(), "b": bad})
    assert (whole.state, whole.reason) == (model.FAILED, "SourceRefused")
    assert whole.message == "node b: a link"


def test_same_path_on_two_nodes_is_a_conflict() -> None:
    whole = output_merge.merge({"a": pinned({"1": b"x"}), "b": pinned({"1": b"x"})})
    assert (whole.state, whole.reason) == (model.FAILED, "OutputConflict")
    assert "nodes a and b have both written '1'" in whole.message


def test_output_without_any_file_fails() -> None:
    whole = output_merge.merge({"a": EMPTY})
    assert (whole.state, whole.reason) == (model.FAILED, "SourceMissing")
    assert "$KILN_OUTPUTS" in whole.message
