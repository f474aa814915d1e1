"""The manager's record of the namespaces that it serves."""

from pathlib import Path

from kilnwork.cli import namespace_record


def test_left_namespace_is_reported_until_it_is_forgotten(tmp_path: Path) -> None:
    assert namespace_record.record_served(tmp_path, ("a", "b", "c")).left == ()
    assert namespace_record.record_served(tmp_path, ("a",)).left == ("b", "c")
    namespace_record.forget(tmp_path, "b")
    assert namespace_record.record_served(tmp_path, ("a",)).left == ("c",)
    assert namespace_record.record_served(tmp_path, ("a", "c")).left == ()


def test_manager_of_all_namespaces_leaves_none(tmp_path: Path) -> None:
    namespace_record.record_served(tmp_path, ("a", "b"))
    assert namespace_record.record_served(tmp_path, ()).left == ()
    assert namespace_record.record_served(tmp_path, ("a",)).left == ()


def test_broken_record_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text("{")
    assert namespace_record.record_served(tmp_path, ("a",)).left == ()
