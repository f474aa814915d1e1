"""The newest view of each declared task."""

import msgspec

from kilnwork.api import task
from kilnwork.controllers import task_view_cache
from kilnwork.kit import ids
from support import view_samples

A = ids.task_id("018f3a5e-0000-7000-8000-000000000001")
B = ids.task_id("018f3a5e-0000-7000-8000-000000000002")
VIEW = view_samples.waiting(task=A, seq=5)


def test_newer_view_replaces_the_older() -> None:
    known = task_view_cache.TaskViews()
    known.put(VIEW)
    newer = msgspec.structs.replace(VIEW, seq=6, state=task.State.RUNNING)
    known.put(newer)
    known.put(VIEW)
    assert known.get(A) == newer


def test_new_run_replaces_a_view_with_a_higher_change_number() -> None:
    known = task_view_cache.TaskViews()
    known.put(VIEW)
    again = msgspec.structs.replace(VIEW, run=2, seq=1)
    known.put(again)
    assert known.get(A) == again


def test_tasks_of_one_name_are_found_together_until_dropped() -> None:
    known = task_view_cache.TaskViews()
    known.put(VIEW)
    known.put(msgspec.structs.replace(VIEW, task=B))
    assert {v.task for v in known.named(("default", "a"))} == {A, B}
    known.drop(A)
    known.drop(A)
    assert {v.task for v in known.named(("default", "a"))} == {B}
    known.drop(B)
    assert list(known.keys()) == []
    assert len(known) == 0
