"""Messages of agents become inputs of the machine, with texts no longer than may be kept."""

from types import SimpleNamespace
from typing import Any, cast

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch.hub import agents
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids

LINK = cast(Any, SimpleNamespace(number=3))
REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)


class RecordingCore:
    """A core that only records its inputs."""

    def __init__(self) -> None:
        self.applied: list[Any] = []

    def apply(self, item: object) -> None:
        self.applied.append(item)


def agents_of(core: RecordingCore) -> agents.Agents:
    unused = cast(Any, SimpleNamespace(start=None, stop=None))
    return agents.Agents(
        cast(Any, core),
        authenticator=unused,
        logs=unused,
        view=lambda _: None,
        in_pods=unused,
        concluded=unused,
        variables=lambda *_: None,
    )


def test_progress_message_is_truncated() -> None:
    core = RecordingCore()
    message = messages.Progress(REF, 0.5, "x" * (agents.MAX_MESSAGE_LENGTH + 1))
    agents_of(core).received(LINK, message)
    [applied] = core.applied
    assert isinstance(applied, inputs.AttemptProgress)
    assert applied.progress.fraction == 0.5
    assert applied.progress.message == "x" * agents.MAX_MESSAGE_LENGTH


def test_attempt_with_too_large_a_result_fails_with_its_times_and_usage() -> None:
    outcome = attempts.Outcome(
        attempts.Ending.SUCCEEDED,
        "Succeeded",
        exit_code=0,
        result=attempts.Payload(attempts.JSON, bytes(attempts.MAX_INLINE_BYTES + 1)),
        started=5.0,
        finished=9.0,
        usage=attempts.Usage(1.0, 2),
    )
    bounded = agents.bounded(outcome)
    assert (bounded.ending, bounded.reason) == (attempts.Ending.FAILED, "ResultTooLarge")
    assert bounded.result is None
    assert (bounded.exit_code, bounded.started, bounded.finished) == (0, 5.0, 9.0)
    assert bounded.usage == attempts.Usage(1.0, 2)
