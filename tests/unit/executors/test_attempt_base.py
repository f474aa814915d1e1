"""The life of an attempt in an executor process: its end is reported once, whatever happens."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from kilnwork.api import attempts, reasons, task
from kilnwork.channel import messages
from kilnwork.executors import attempt_base
from kilnwork.kit import clock, ids

E = attempts.Ending
R = reasons.Reason
REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 2)
HALT = attempt_base.Halt(E.STOPPED, "Killed", "by the user")


class Link:
    """Keeps what is sent and reported."""

    def __init__(self) -> None:
        self.sent: list[messages.Observed | messages.Log | messages.Progress] = []
        self.reports: list[messages.Started | messages.Finished] = []

    def send(self, message: messages.Observed | messages.Log | messages.Progress) -> None:
        self.sent.append(message)

    def report(self, make: Callable[[int], messages.Started | messages.Finished]) -> None:
        self.reports.append(make(len(self.reports) + 1))

    async def store(self, make: Callable[[int], messages.Started | messages.Finished]) -> None:
        self.report(make)

    def outcome(self) -> attempts.Outcome:
        (report,) = self.reports
        assert isinstance(report, messages.Finished)
        return report.outcome


class Sample(attempt_base.ProcessAttempt):
    """Does what `work` does; `cuts` counts how often it was cut."""

    def __init__(self, link: Link, work: Callable[[], attempts.Outcome] | None = None) -> None:
        run = messages.Run(REF, "ns", "t", task.TaskSpec(), inputs=None)
        super().__init__(run, link, clock.SystemClock())
        self.began = asyncio.Event()
        self.cuts = 0
        self._do = work

    async def _carry_out(self) -> attempts.Outcome:
        self.began.set()
        if self._do is None:
            await asyncio.sleep(60)
            raise AssertionError("nothing has ended it")
        return self._do()

    async def _cut(self) -> bool:
        self.cuts += 1
        return False

    def succeed(self, message: str = "") -> attempts.Outcome:
        return self._ended(E.SUCCEEDED, R.SUCCEEDED, message)

    def see(self, reason: R) -> None:
        self._see(reason)


async def test_its_outcome_is_reported() -> None:
    link = Link()
    made = Sample(link, lambda: made.succeed("done"))
    await made.live()
    assert (link.outcome().ending, link.outcome().message) == (E.SUCCEEDED, "done")
    assert made.finished.is_set()


async def test_a_defect_ends_it_and_is_named_but_not_what_was_raised() -> None:
    link = Link()

    def fail() -> attempts.Outcome:
        raise RuntimeError("secret")

    made = Sample(link, fail)
    await made.live()
    outcome = link.outcome()
    assert (outcome.ending, outcome.reason) == (E.FAILED, R.INTERNAL_ERROR)
    assert "RuntimeError" in outcome.message
    assert "secret" not in outcome.message
    assert not outcome.proof, "it could not be cut"
    assert made.cuts == 1


async def test_the_first_halt_counts() -> None:
    link = Link()
    made = Sample(link)
    living = asyncio.create_task(made.live())
    await made.began.wait()
    made.halt(HALT)
    made.halt(attempt_base.Halt(E.LOST, "WorkerLost"))
    await living
    assert (link.outcome().ending, link.outcome().reason) == (E.STOPPED, "Killed")
    assert link.outcome().message == "by the user"


async def test_attempt_halted_before_its_start_does_nothing() -> None:
    link = Link()
    made = Sample(link)
    made.halt(HALT)
    await made.live()
    assert link.outcome().reason == "Killed"
    assert not made.began.is_set()


async def test_attempt_unknown_to_the_dispatcher_reports_nothing() -> None:
    link = Link()
    made = Sample(link)
    living = asyncio.create_task(made.live())
    await made.began.wait()
    made.abandon()
    await living
    assert link.reports == []
    assert made.finished.is_set()


async def test_when_the_process_leaves_nothing_is_reported() -> None:
    link = Link()
    made = Sample(link)
    living = asyncio.create_task(made.live())
    await made.began.wait()
    living.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await living
    assert link.reports == []
    assert made.finished.is_set()


async def test_report_is_sent_and_kept_for_a_new_link() -> None:
    link = Link()
    made = Sample(link)
    made.see(R.CONNECTING)
    assert link.sent == [made.seen] == [messages.Observed(REF, R.CONNECTING.value)]


@pytest.mark.parametrize(("offset", "rest"), [(0, b"abc"), (2, b"c"), (3, None)])
async def test_its_log_is_sent_from_an_offset(offset: int, rest: bytes | None) -> None:
    link = Link()
    made = Sample(link)
    made.log = b"abc"
    made.send_log(offset)
    assert link.sent == ([] if rest is None else [messages.Log(REF, offset, rest)])


async def test_messages_are_cut_and_can_be_sent() -> None:
    link = Link()
    long = "\udcff" + "x" * 5000
    made = Sample(link, lambda: made.succeed(long))
    await made.live()
    assert link.outcome().message == "?" + "x" * (attempt_base.MAX_MESSAGE - 1)
