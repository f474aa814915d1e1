"""Sources that are pinned regularly are not read again."""

from pathlib import Path

from kilnwork.data.pond import store
from kilnwork.kit import clock
from support import ponds


def test_journal_of_a_source_is_kept_after_a_pin_without_changes(tmp_path: Path) -> None:
    time = clock.ManualClock(wall=clock.SystemClock().wall())
    kept = ponds.opened(tmp_path / "pond", time=time)
    source = ponds.CountingSource({"a": b"1", "b": b"2"})
    ponds.pin(kept, source)
    (identity,) = kept.sources()

    for _ in range(2):
        time.advance(0.6 * store.SOURCE_S)
        ponds.pin(kept, source)
    kept.close()
    kept.open()

    assert kept.sources() == (identity,)
    ponds.pin(kept, source)
    assert len(source.opened) == 2
    kept.close()
