"""The table of Pods says what the code does."""

from kilnwork.api import reasons
from kilnwork.executors.pod import states_reference
from support import state_checks

R = reasons.Reason


def test_the_table_has_the_reasons_that_the_code_gives() -> None:
    of_its_sidecar = {R.INVALID_RESULT, R.RESULT_TOO_LARGE}
    state_checks.check(
        states_reference.TABLE,
        ("pod/*.py", "creation_failures.py"),
        others=state_checks.DRIVER | of_its_sidecar,
    )
