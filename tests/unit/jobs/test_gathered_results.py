"""The results of all items as one list, or the reason why a finalizer cannot get them."""

from pathlib import Path
from typing import Any, cast

import pytest

from kilnwork.api import attempts
from kilnwork.data import local_blobs
from kilnwork.jobs import gathered_results, item_states, live_job_state, task_hub
from kilnwork.kit import clock, ids
from support import index_records

Row = tuple[str | None, bytes | None, int | None, bytes | None]


class Hub:
    """Returns stored results by item."""

    def __init__(self, job: live_job_state.Job, rows: dict[int, Row]) -> None:
        uuid = job.id.uuid
        self.rows = {task_hub.task_id(uuid, item): row for item, row in rows.items()}

    def select(self, name: str, task: ids.TaskId) -> list[Row]:
        assert name == "task_result"
        return [self.rows[task]] if task in self.rows else []


def gathering(
    rows: dict[int, Row],
    *,
    count: int = 3,
    around: gathered_results.FinalizerArguments | None = None,
) -> gathered_results.GatheredResults:
    job = index_records.job(count)
    for item in rows:
        job.items.set(item, item_states.ItemState.SUCCEEDED)
    hub = cast("task_hub.TaskHub", Hub(job, rows))
    return gathered_results.GatheredResults(job, hub, around)


def json(data: bytes) -> Row:
    return (attempts.JSON, data, None, None)


def test_results_are_listed_in_order_with_null_if_missing() -> None:
    found = gathering({1: json(b"1"), 3: json(b'"x"')})
    assert not found.read_more()
    assert (found.in_memory, found.trouble) == (b'[1,null,"x"]', "")


def test_many_results_are_read_in_batches() -> None:
    count = gathered_results.READS + 1
    found = gathering({}, count=count)
    assert found.read_more()
    assert not found.read_more()
    assert found.in_memory == b"[%b]" % b",".join([b"null"] * count)


def test_large_results_are_read_from_blobs(tmp_path: Path) -> None:
    kept = local_blobs.Blobs(tmp_path, durable=False, time=clock.SystemClock())
    with kept.writer() as new:
        new.write(b"[2]")
        digest, size = new.commit()
    found = gathering({1: json(b"1"), 2: (attempts.JSON, None, size, digest)}, count=2)
    found.read_more()
    assert found.in_memory is None
    assert found.build(kept) == b"[1,[2]]"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (json(b"x" * gathered_results.MAX_BYTES), "its finalizer gets at most"),
        (("application/x-pickle", b"x", None, None), "a finalizer gets JSON"),
        (cast("Any", None), "is in the journal no more"),
    ],
)
def test_unusable_results_report_reason(row: Row | None, why: str) -> None:
    found = gathering({1: row} if row else {})
    if row is None:
        found._job.items.set(1, item_states.ItemState.SUCCEEDED)
    found.read_more()
    assert why in found.trouble


def test_call_gets_long_list_in_a_blob(tmp_path: Path) -> None:
    around = gathered_results.FinalizerArguments(b"[[", b"],{}]")
    found = gathering({1: json(b"7" * gathered_results.MAX_BYTES)}, count=1, around=around)
    assert not found.read_more()
    assert found.trouble == ""
    kept = local_blobs.Blobs(tmp_path, durable=False, time=clock.SystemClock())
    built = found.build(kept)
    assert isinstance(built, attempts.Payload)
    assert built.digest is not None
    assert bytes(kept.get(built.digest)).startswith(b"[[[777")
