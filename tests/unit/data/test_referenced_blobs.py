"""References in a pickle are recorded for the code that collects them, separately in each
thread."""

import threading

from kilnwork.data import referenced_blobs


def test_noting_blocks_may_be_nested() -> None:
    with referenced_blobs.noting() as outer:
        referenced_blobs.note((b"1",))
        with referenced_blobs.noting() as inner:
            referenced_blobs.note((b"2", b"3"))
        referenced_blobs.note((b"4",))
    referenced_blobs.note((b"5",))  # no collector is active
    assert (outer, inner) == ([b"1", b"4"], [b"2", b"3"])


def test_threads_collect_separately() -> None:
    with referenced_blobs.noting() as mine:
        other = threading.Thread(target=referenced_blobs.note, args=((b"1",),))
        other.start()
        other.join()
    assert mine == []
