"""The table of external executors says what the code does."""

from kilnwork.api import reasons
from kilnwork.executors import external_states_reference
from support import state_checks

R = reasons.Reason


def test_the_table_has_the_reasons_that_the_code_gives() -> None:
    state_checks.check(
        external_states_reference.TABLE,
        ("external.py", "attempt_base.py", "../controllers/task_claim/*.py"),
        others=state_checks.OUTSIDE | {R.STARTING, R.STARTED},
        unused=frozenset({R.REPLACED}),
    )
