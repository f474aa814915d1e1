"""The port of executors: defaults of what crosses it, and its optional abilities."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from kilnwork.api import attempts
from kilnwork.executors import port
from kilnwork.kit import ids


class Plain:
    """An executor without an ability."""

    name = "plain"


class InWorkers(Plain):
    in_workers = True


class Watches(Plain):
    def watch(self, wake: port.Wake) -> None:
        """Watch nothing."""

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        """Return nothing."""


class Reads(Plain):
    async def outputs(self, attempt: port.Attempt) -> Sequence[port.AttemptOutput]:
        return ()

    async def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        yield b""


@pytest.mark.parametrize(
    ("executor", "abilities"),
    [
        (Plain(), [False, False, False]),
        (InWorkers(), [True, False, False]),
        (Watches(), [False, True, False]),
        (Reads(), [False, False, True]),
    ],
)
def test_an_ability_is_known_by_its_methods(executor: object, abilities: list[bool]) -> None:
    every = (port.RunsInWorkers, port.WatchesAttempts, port.ReadsLogs)
    assert [isinstance(executor, ability) for ability in every] == abilities


def test_an_observation_exists_and_is_not_over_unless_it_says_so() -> None:
    seen = port.Observation(phase=port.Phase.RUNNING, reason="Started")
    assert (seen.exists, seen.outcome, seen.started, seen.check_s) == (True, None, None, None)


def test_a_log_is_read_whole_and_ends_unless_it_is_followed() -> None:
    how = port.LogRange()
    assert (how.skip, how.follow, how.max_bytes) == (0, False, None)
    output = port.AttemptOutput("a", "main")
    assert (output.life, output.is_over) == (0, False)


@pytest.mark.parametrize("is_loss", [False, True])
def test_a_result_that_cannot_be_had_is_a_failure_unless_it_is_a_loss(
    is_loss: bool,  # noqa: FBT001
) -> None:
    error = port.ResultError("ResultLost", "gone", is_loss=is_loss)
    assert (error.reason, str(error), error.is_loss) == ("ResultLost", "gone", is_loss)
    assert port.ResultError("ResultLost", "gone").is_loss is False


def test_a_wake_that_is_ignored_takes_any_time() -> None:
    port.ignore_wake(attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1), after_s=1.0)


def test_phases_are_three() -> None:
    assert [phase.value for phase in port.Phase] == ["Staging", "Running", "Over"]
