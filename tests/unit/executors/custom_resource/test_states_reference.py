"""The tables of objects and of Workflows say what the code does."""

from kilnwork.api import reasons
from kilnwork.executors.custom_resource import states_reference
from support import state_checks

R = reasons.Reason


def test_the_table_of_objects_has_the_reasons_that_the_code_gives() -> None:
    sources = ("custom_resource/*.py", "creation_failures.py")
    state_checks.check(states_reference.OBJECTS, sources, others=state_checks.DRIVER)


def test_the_table_of_workflows_has_the_reasons_that_the_code_gives() -> None:
    state_checks.check(
        states_reference.WORKFLOWS,
        ("custom_resource/*.py", "workflow/*.py", "creation_failures.py"),
        others=state_checks.DRIVER,
        unused=frozenset({R.OBJECT_FAILED}),  # of objects that are read by rules
    )
