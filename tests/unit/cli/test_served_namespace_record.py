"""The manager's record of the namespaces that it serves."""

from pathlib import Path

from kilnwork.cli import served_namespace_record


def test_left_namespace_is_reported_until_it_is_forgotten(tmp_path: Path) -> None:
    assert served_namespace_record.record_served(tmp_path, ("a", "b", "c")).left == ()
    assert served_namespace_record.record_served(tmp_path, ("a",)).left == ("b", "c")
    served_namespace_record.forget(tmp_path, "b")
    assert served_namespace_record.record_served(tmp_path, ("a",)).left == ("c",)
    assert served_namespace_record.record_served(tmp_path, ("a", "c")).left == ()


def test_manager_of_all_namespaces_leaves_none(tmp_path: Path) -> None:
    served_namespace_record.record_served(tmp_path, ("a", "b"))
    assert served_namespace_record.record_served(tmp_path, ()).left == ()
    assert served_namespace_record.record_served(tmp_path, ("a",)).left == ()


def test_broken_record_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text("{")
    assert served_namespace_record.record_served(tmp_path, ("a",)).left == ()
