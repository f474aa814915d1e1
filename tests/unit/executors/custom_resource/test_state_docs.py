"""The tables of objects and of Workflows say what the code does."""

from kilnwork.api import reasons
from kilnwork.executors.custom_resource import state_docs
from support import state_checks

R = reasons.Reason


def test_the_table_of_objects_has_the_reasons_that_the_code_gives() -> None:
    sources = ("custom_resource/*.py", "refusals.py")
    state_checks.check(state_docs.OBJECTS, sources, others=state_checks.DRIVER)


def test_the_table_of_workflows_has_the_reasons_that_the_code_gives() -> None:
    state_checks.check(
        state_docs.WORKFLOWS,
        ("custom_resource/*.py", "workflow/*.py", "refusals.py"),
        others=state_checks.DRIVER,
        unused=frozenset({R.OBJECT_FAILED}),  # of objects that are read by rules
    )
