"""Decisions on a job, compared with all outcomes that are still possible."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import resolved_job_settings
from kilnwork.jobs import completion, live_job_state

_V = completion.Verdict
WANTED = st.one_of(
    st.builds(resolved_job_settings.Completion, min_successful=st.integers(1, 7)),
    st.builds(resolved_job_settings.Completion, max_failed=st.integers(0, 7)),
)


def counts(succeeded: int, failed: int, cancelled: int) -> live_job_state.ItemCounts:
    found = live_job_state.ItemCounts()
    found.succeeded, found.failed, found.cancelled = succeeded, failed, cancelled
    return found


def succeeds(
    wanted: resolved_job_settings.Completion,
    ends: tuple[bool, ...],
    known: live_job_state.ItemCounts,
) -> bool:
    """Return whether a job has succeeded once its last indexes have ended so."""
    if wanted.min_successful is not None:
        return known.succeeded + sum(ends) >= wanted.min_successful
    assert wanted.max_failed is not None
    return known.failed + len(ends) - sum(ends) <= wanted.max_failed


@given(WANTED, st.integers(0, 4), st.integers(0, 4), st.integers(0, 2), st.integers(0, 5))
def test_job_is_lost_only_when_it_cannot_succeed(
    wanted: resolved_job_settings.Completion, succeeded: int, failed: int, cancelled: int, left: int
) -> None:
    known = counts(succeeded, failed, cancelled)
    size = known.closed + left
    if size == 0:
        assert completion.decide(wanted, known, size) is _V.ENOUGH
        return
    outcomes = [
        succeeds(wanted, ends, known) for ends in itertools.product((True, False), repeat=left)
    ]
    found = completion.decide(wanted, known, size)
    assert (found is _V.LOST) == (not any(outcomes))
    if wanted.min_successful is not None:
        assert (found is _V.ENOUGH) == all(outcomes)
    else:  # all indexes are tried
        assert (found is _V.ENOUGH) == (left == 0 and outcomes[0])


def test_lost_job_has_failure_message() -> None:
    least = resolved_job_settings.Completion(min_successful=3)
    most = resolved_job_settings.Completion(max_failed=1)
    known = counts(1, 2, 0)
    assert (
        completion.failure_message(least, known, 4) == "2 of 4 indexes failed, and 3 must succeed"
    )
    assert completion.failure_message(most, known, 4) == "2 of 4 indexes failed, and 1 may"


def test_failure_message_has_the_nouns_of_the_job() -> None:
    least = resolved_job_settings.Completion(min_successful=3)
    most = resolved_job_settings.Completion(max_failed=1)
    known = counts(0, 2, 1)
    assert (
        completion.failure_message(least, known, 4, nouns="parts")
        == "3 of 4 parts failed, and 3 must succeed"
    )
    assert completion.failure_message(most, known, 4, nouns="parts") == (
        "2 of 4 parts failed, and 1 may"
    )


def test_numbers_of_verdicts_are_stable() -> None:
    assert {verdict.name: int(verdict) for verdict in _V} == {"OPEN": 0, "ENOUGH": 1, "LOST": 2}
