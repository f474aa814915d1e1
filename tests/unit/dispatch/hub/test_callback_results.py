"""Which callbacks have ended attempts: the newest are known, by what they said."""

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch.hub import callback_results
from support import scripted_calls


def callback(number: int, body: bytes = b"1") -> messages.Callback:
    ref = attempts.AttemptRef(scripted_calls.task_id(number), 1, 1)
    return messages.Callback(ref, attempts.JSON, body)


def test_repeated_result_is_recognized_and_another_is_not() -> None:
    concluded = callback_results.Concluded()
    assert not concluded.has(callback(1))
    concluded.add(callback(1).ref, callback(1).digest())
    assert concluded.has(callback(1))
    assert not concluded.has(callback(1, b"2"))
    assert not concluded.has(callback(2))


def test_oldest_digests_are_dropped() -> None:
    concluded = callback_results.Concluded()
    for number in range(callback_results.MAX_CONCLUDED + 1):
        concluded.add(callback(number).ref, b"")
    concluded.add(callback(5).ref, callback(5).digest())
    assert callback(0).ref not in concluded._digests
    assert concluded.has(callback(5))
    assert len(concluded._digests) == callback_results.MAX_CONCLUDED
