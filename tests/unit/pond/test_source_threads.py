"""Threads of each source: one that waits holds up no other."""

import threading

from kilnwork.pond import source_threads


def test_a_source_that_waits_holds_up_no_other() -> None:
    lanes = source_threads.Lanes("test", 1)
    gate = threading.Event()
    waiting = lanes.pool("slow").submit(gate.wait, 10)
    assert lanes.pool("fast").submit(lambda: 3).result(timeout=10) == 3
    assert not waiting.done()
    gate.set()
    lanes.close()
    assert waiting.result() is True


def test_threads_are_made_once_and_named_for_their_source() -> None:
    lanes = source_threads.Lanes("test", 1)
    assert lanes.pool("a") is lanes.pool("a")
    name = lanes.pool("a").submit(lambda: threading.current_thread().name).result(timeout=10)
    assert name.startswith("test-a")
    lanes.close()


def test_another_size_makes_other_threads_and_what_was_begun_ends() -> None:
    lanes = source_threads.Lanes("test", 1)
    gate = threading.Event()
    old = lanes.pool("a")
    begun = old.submit(gate.wait, 10)
    lanes.resize(1)
    assert lanes.pool("a") is old
    lanes.resize(2)
    both = threading.Barrier(2)
    found = [lanes.pool("a").submit(both.wait, 10) for _ in range(2)]
    assert sorted(one.result(timeout=10) for one in found) == [0, 1]
    gate.set()
    assert begun.result(timeout=10) is True
    lanes.close()
