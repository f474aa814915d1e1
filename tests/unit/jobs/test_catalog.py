"""The catalog has one owner at a time."""

from pathlib import Path

import pytest

from kilnwork.jobs import catalog, errors


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    first, second = (catalog.Catalog(tmp_path / "jobs.db") for _ in range(2))
    assert first.open()
    with pytest.raises(errors.CatalogLocked, match="in use by process"):
        second.open()
    first.close()
    assert not second.open()
    second.close()
