"""Views of the dispatcher: counts of attempts, workers that serve, slots of a cluster."""

from typing import Any

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from support import view_samples


def worker(**facts: Any) -> model.WorkerView:
    given = {"name": "w", "pod_uid": "u", "node": "n", "slots": 4, "busy": 1, "ready": True}
    return model.WorkerView(**{**given, **facts})


def test_attempts_that_were_taken_back_do_not_count() -> None:
    assert view_samples.running(attempt=5, unstarted=2).attempts == 3


@pytest.mark.parametrize(
    ("ready", "draining", "connected", "serves"),
    [
        (True, False, True, True),
        (False, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
    ],
)
def test_a_worker_serves_while_it_is_connected(
    *, ready: bool, draining: bool, connected: bool, serves: bool
) -> None:
    assert worker(ready=ready, draining=draining, connected=connected).serving is serves


def test_only_ready_workers_have_slots() -> None:
    workers = (worker(), worker(ready=False), worker(slots=2, busy=2))
    view = model.ClusterView(namespace="ns", cluster="c", workers=workers, queued=0)
    assert (view.slots, view.busy) == (6, 3)


def test_images_are_labels_on_this_machine() -> None:
    spec = api_task.TaskSpec(image="python:3.11")
    use = model.label_image("ns", spec)
    assert use.spec is spec
    assert use.warning.startswith("spec.image python:3.11: images are labels here")
    assert use.refusal == ""
