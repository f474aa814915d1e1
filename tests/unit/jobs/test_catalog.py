"""The catalog has one owner at a time."""

import os
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


@pytest.mark.parametrize("size", [0, 1, 100, 4096, -4096])
def test_a_catalog_that_lost_its_content_is_refused(tmp_path: Path, size: int) -> None:
    """Emptied or cut off, it is no first start: jobs that had not started are nowhere else."""
    path = tmp_path / "jobs.db"
    made = catalog.Catalog(path)
    assert made.open()
    made.close()
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(errors.CatalogUnreadable, match=r"move jobs\.db\* elsewhere"):
            made.open()
    assert path.read_bytes() == before
    for file in tmp_path.glob("jobs.db*"):
        file.unlink()
    assert made.open()
    made.close()
