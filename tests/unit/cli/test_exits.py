"""Exit codes on which scripts rely."""

from kilnwork.cli import exits

CODES = {
    "OK": 0,
    "FAILED": 1,
    "USAGE": 2,
    "UNREACHABLE": 3,
    "NOT_FOUND": 4,
    "TIMED_OUT": 5,
    "TASK_FAILED": 6,
    "FORBIDDEN": 7,
    "INTERRUPTED": 130,
}


def test_codes_do_not_change() -> None:
    assert {code.name: code.value for code in exits.Exit} == CODES


def test_each_code_has_a_meaning() -> None:
    assert list(exits.MEANINGS) == list(exits.Exit)
