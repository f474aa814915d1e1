"""References in a pickle are recorded for the code that collects them, separately in each
thread."""

import threading

from kilnwork.data import pickled_blob_references


def test_noting_blocks_may_be_nested() -> None:
    with pickled_blob_references.noting() as outer:
        pickled_blob_references.note((b"1",))
        with pickled_blob_references.noting() as inner:
            pickled_blob_references.note((b"2", b"3"))
        pickled_blob_references.note((b"4",))
    pickled_blob_references.note((b"5",))  # no collector is active
    assert (outer, inner) == ([b"1", b"4"], [b"2", b"3"])


def test_threads_collect_separately() -> None:
    with pickled_blob_references.noting() as mine:
        other = threading.Thread(target=pickled_blob_references.note, args=((b"1",),))
        other.start()
        other.join()
    assert mine == []
