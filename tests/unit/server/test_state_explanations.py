"""One sentence that explains the state of a task."""

import pytest

from kilnwork.api import attempts
from kilnwork.server import state_explanations


def test_sentence_of_running_task_says_that_it_is_suspended() -> None:
    facts = state_explanations.WhyFacts(name="a", state="Running", attempt=1, suspended=True)
    assert state_explanations.sentence(facts, now=0.0) == (
        "Task a runs, attempt 1. It is suspended: no other attempt starts before `kiln resume a`."
    )
    found = {"metadata": {"name": "a"}, "spec": {"suspend": True}, "status": {"state": "Running"}}
    assert "It is suspended" in state_explanations.sentence(
        state_explanations.WhyFacts.of_object(found), now=0.0
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            state_explanations.WhyFacts(name="a"),
            (
                "Task a has not been looked at yet: the server is starting or busy "
                "(`kiln status` shows it), or it serves other namespaces."
            ),
        ),
        (
            state_explanations.WhyFacts(
                name="a",
                state="Pending",
                reason="WaitingForObject",
                message='TaskObject "x" does not exist',
            ),
            'Task a is Pending (WaitingForObject): TaskObject "x" does not exist.',
        ),
        (
            state_explanations.WhyFacts(name="a", state="Pending", reason="NoWorker"),
            "Task a is Pending (NoWorker): No worker of its TaskCluster is connected.",
        ),
        (
            state_explanations.WhyFacts(
                name="a",
                state="Running",
                reason="Started",
                worker="w-0",
                node="n",
                attempt=2,
                started=900.0,
            ),
            "Task a runs for 100 s on worker w-0 (node n), attempt 2.",
        ),
        (
            state_explanations.WhyFacts(
                name="a", state="Running", reason="Started", worker="a-1", own_pod=True, attempt=1
            ),
            "Task a runs in Pod a-1, attempt 1.",
        ),
        (
            state_explanations.WhyFacts(
                name="a", state="Running", reason="Started", attempt=1, progress="40 %, page 3"
            ),
            "Task a runs, attempt 1: 40 %, page 3.",
        ),
        (
            state_explanations.WhyFacts(
                name="a", state="Success", attempt=3, started=1.0, finished=1.5
            ),
            "Task a succeeded in less than a second after 3 attempts.",
        ),
        (
            state_explanations.WhyFacts(
                name="a",
                state="Failed",
                reason="NonZeroExit",
                message="exit code 3",
                attempt=1,
                exit_code=3,
            ),
            "Task a failed (NonZeroExit): exit code 3; `kiln logs a` shows what it printed.",
        ),
        (
            state_explanations.WhyFacts(
                name="a", state="Failed", reason="Odd", message="it broke.", exit_code=4
            ),
            "Task a failed (Odd): it broke, exit code 4; `kiln logs a` shows what it printed.",
        ),
        (
            state_explanations.WhyFacts(
                name="a",
                state="Running",
                reason="Started",
                worker="e1",
                of_executor=True,
                attempt=1,
            ),
            "Task a runs by executor e1, attempt 1.",
        ),
        (
            state_explanations.WhyFacts(name="a", state="Killed", reason="Killed"),
            "Task a was killed (Killed): It was killed on request: `killTimestamp`, or cancel.",
        ),
    ],
)
def test_sentence_explains_state(facts: state_explanations.WhyFacts, expected: str) -> None:
    assert state_explanations.sentence(facts, now=1000.0) == expected


def test_unreadable_times_of_a_status_are_none() -> None:
    facts = state_explanations.WhyFacts.of_object(
        {
            "metadata": {"name": "a"},
            "status": {"state": "Success", "startTime": "x", "attempts": 1},
        }
    )
    assert facts.started is None
    assert state_explanations.sentence(facts, now=0.0) == "Task a succeeded."


def test_used_memory_is_compared_with_memory_of_worker() -> None:
    used = attempts.Usage(12.34, int(1.9 * 2**30))
    facts = state_explanations.WhyFacts(
        name="t", state="Success", attempt=1, usage=used, memory="2Gi"
    )
    assert state_explanations.sentence(facts, now=0.0) == (
        "Task t succeeded. It used 12.3 s of CPU and up to 1.9 GiB of memory, of 2 GiB that its "
        "worker has."
    )
    unknown = state_explanations.WhyFacts(
        name="t", state="Success", attempt=1, usage=attempts.Usage(0.0)
    )
    assert (
        state_explanations.sentence(unknown, now=0.0) == "Task t succeeded. It used 0.0 s of CPU."
    )
