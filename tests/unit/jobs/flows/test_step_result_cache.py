"""Results recorded as tasks end: those that are known, and none if there are too many."""

from kilnwork.api import attempts
from kilnwork.jobs.flows import step_result_cache


def payload(size: int) -> attempts.Payload:
    return attempts.Payload(attempts.JSON, b"7" * size)


def test_only_noted_results_are_known() -> None:
    seen = step_result_cache.SeenResults(3, most=100)
    seen.note(0, payload(2))
    seen.note(2, None)
    assert [seen.knows(number) for number in range(3)] == [True, False, True]
    assert (seen.get(0), seen.get(2)) == (payload(2), None)


def test_all_results_are_dropped_beyond_size_limit() -> None:
    seen = step_result_cache.SeenResults(4, most=10)
    seen.note(0, payload(4))
    seen.note(1, payload(6))
    assert seen.knows(0)
    seen.note(2, payload(1))
    seen.note(3, None)
    assert not any(seen.knows(number) for number in range(4))
    assert seen.get(0) is None
