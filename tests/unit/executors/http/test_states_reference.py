"""The table of requests says what the code does."""

from kilnwork.api import reasons
from kilnwork.executors.http import states_reference
from support import state_checks

R = reasons.Reason


def test_the_table_has_the_reasons_that_the_code_gives() -> None:
    state_checks.check(
        states_reference.TABLE,
        ("http/*.py", "attempt_base.py"),
        others=state_checks.OUTSIDE | {R.EXECUTOR_LOST},
        unused=frozenset({R.REPLACED}),
    )
