"""Results of a step's tasks are read from memory or the journal, or refused with a reason."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.jobs import file_job_types, item_states, live_job_state, task_hub
from kilnwork.jobs.flows import row_storage, step_inputs, step_item_source, step_results
from kilnwork.kit import ids

CALL = api_task.TaskTemplate(call=api_task.Call(function="f:f"))


def payload(data: bytes, media_type: str = attempts.JSON, **more: Any) -> attempts.Payload:
    return attempts.Payload(media_type, data, **more)


class Hub:
    """Returns stored results of tasks. `known`: whether it has a result for all other tasks,
    too."""

    def __init__(self) -> None:
        self.found: dict[ids.TaskId, attempts.Payload] = {}
        self.known = True

    def result(self, task: ids.TaskId) -> attempts.Payload | None:
        return self.found.get(task)

    def knows(self, task: ids.TaskId) -> bool:
        return self.known


class Step:
    """A finished step with this number of items; 0 means one task."""

    def __init__(self, count: int = 0) -> None:
        variable, many = ("s", (msgspec.Raw(b"1"),) * count) if count else ("", ())
        work = step_inputs.StepWork(
            name="s", template=CALL, variable=variable, items=many, wanted=True
        )
        sources = step_item_source.StepSources(Path("none"), lambda task: None)
        source = sources.new(work)
        self.job = live_job_state.Job(
            file_job_types.JobId(bytes(16), "j"), row=1, namespace="ns", created=0.0, source=source,
            spec=sources.spec(b'{"name":"s"}'),
        )  # fmt: skip
        self.hub = Hub()
        self.results = step_results.StepResults(
            self.job,
            cast("task_hub.TaskHub", self.hub),
            kept=row_storage.FlowTables(lambda name, *values: [], Path("none")),
            keep=lambda key, data: None,
        )

    def succeed(self, number: int, result: attempts.Payload | None) -> None:
        self.job.items.set(number + 1, item_states.ItemState.SUCCEEDED)
        if result is not None:
            self.hub.found[task_hub.task_id(bytes(16), number + 1)] = result

    def read(self) -> str:
        """Return the reason why the results cannot be used."""
        while self.results.read_more():
            continue
        return self.results.trouble


def test_single_task_gives_value_and_items_give_list() -> None:
    one, many = Step(), Step(3)
    one.succeed(0, payload(b"7"))
    many.succeed(0, payload(b"1"))
    many.succeed(2, payload(b"3"))
    assert (one.read(), one.results.value) == ("", b"7")
    assert (many.read(), many.results.value) == ("", b"[1,null,3]")


def test_many_results_are_read_in_batches() -> None:
    step = Step(step_results.READS + 1)
    assert step.results.read_more()
    assert not step.results.read_more()


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (payload(b"x", "application/x-pickle"), "is application/x-pickle, and other steps read"),
        (payload(b"", digest=b"d" * 32, size=step_results.MAX_BYTES + 1), "has "),
        (payload(b"", digest=b"d" * 32, size=9), "cannot be read: "),
    ],
)
def test_unusable_result_reports_reason(result: attempts.Payload, why: str) -> None:
    step = Step(2)
    step.succeed(1, result)
    assert step.read().startswith(f"the result of shard 1 {why}")


def test_results_beyond_total_size_limit_are_refused() -> None:
    step = Step(2)
    for number in range(2):
        step.succeed(number, payload(b"7" * (step_results.MAX_BYTES // 2 + 1)))
    assert step.read() == step_results.TOO_LARGE


def test_result_deleted_from_journal_is_reported() -> None:
    step = Step()
    step.succeed(0, None)
    assert step.read() == ""
    step = Step()
    step.succeed(0, None)
    step.hub.known = False
    assert "is in the journal no more" in step.read()
