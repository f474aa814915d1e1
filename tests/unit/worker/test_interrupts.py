"""Handlers of signals that a call has set are put right after it."""

import signal
from collections.abc import Iterator

import pytest

from kilnwork.worker import interrupts, slot_call_table


@pytest.fixture
def guard() -> Iterator[interrupts.Interrupts]:
    """Interrupts of this process, for a moment."""
    before = {number: signal.getsignal(number) for number in (interrupts.SIGNAL, signal.SIGCHLD)}
    try:
        yield interrupts.Interrupts(slot_call_table.SlotCalls(), doors=())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signal_handler_replaced_by_a_call_is_restored(guard: interrupts.Interrupts) -> None:
    ours = signal.getsignal(interrupts.SIGNAL)
    signal.signal(interrupts.SIGNAL, signal.SIG_IGN)
    guard.repair()
    assert signal.getsignal(interrupts.SIGNAL) == ours


def test_ignored_sigchld_is_restored_for_the_next_call(guard: interrupts.Interrupts) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    guard.repair()
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL


def test_sigchld_handler_of_a_library_stays(guard: interrupts.Interrupts) -> None:
    def reap(*_: object) -> None:
        """As some library's."""

    signal.signal(signal.SIGCHLD, reap)
    guard.repair()
    assert signal.getsignal(signal.SIGCHLD) is reap
    assert signal.getsignal(interrupts.SIGNAL) is not signal.SIG_DFL
