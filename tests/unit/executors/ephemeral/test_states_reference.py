"""The table of ephemeral containers says what the code does."""

from kilnwork.api import reasons
from kilnwork.executors.ephemeral import states_reference
from support import state_checks

R = reasons.Reason


def test_the_table_has_the_reasons_that_the_code_gives() -> None:
    of_its_worker = {R.NO_WORKER, R.NO_FREE_SLOT, R.WORKER_LOST, R.INVALID_RESULT}
    of_its_pod = {R.EVICTED, R.PREEMPTED, R.NODE_LOST}  # by `pod.observation`
    state_checks.check(
        states_reference.TABLE,
        ("ephemeral/*.py",),
        others=state_checks.DRIVER | of_its_worker | of_its_pod | {R.RESULT_TOO_LARGE},
        unused=frozenset({R.POD_LOST}),
    )
