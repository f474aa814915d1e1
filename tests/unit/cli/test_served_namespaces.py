"""What a manager remembers of the namespaces that it serves."""

from pathlib import Path

from kilnwork.cli import served_namespaces


def test_what_is_left_is_told_until_it_was_done(tmp_path: Path) -> None:
    assert served_namespaces.record_served(tmp_path, ("a", "b", "c")).left == ()
    assert served_namespaces.record_served(tmp_path, ("a",)).left == ("b", "c")
    served_namespaces.forget(tmp_path, "b")
    assert served_namespaces.record_served(tmp_path, ("a",)).left == ("c",)
    assert served_namespaces.record_served(tmp_path, ("a", "c")).left == ()


def test_who_serves_all_leaves_none(tmp_path: Path) -> None:
    served_namespaces.record_served(tmp_path, ("a", "b"))
    assert served_namespaces.record_served(tmp_path, ()).left == ()
    assert served_namespaces.record_served(tmp_path, ("a",)).left == ()


def test_a_broken_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text("{")
    assert served_namespaces.record_served(tmp_path, ("a",)).left == ()
