"""Log records: a constant message, facts as fields."""

import json
import logging
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
from kilnwork.kit import logs
logs.setup(level=sys.argv[1], as_json=sys.argv[2] == "json")
logs.setup(level=sys.argv[1], as_json=sys.argv[2] == "json")
log = logging.getLogger("room")
log.debug("looked")
log.info("made", extra={"task": "t-1", "count": 3})
try:
    raise ValueError("why")
except ValueError:
    log.exception("failed")
"""


def lines(level: str, form: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, level, form], capture_output=True, check=True, text=True
    )
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_text_has_the_facts_behind_the_message() -> None:
    made, *_ = lines("info", "text")
    time, rest = made.split(" ", 1)
    assert time.endswith("Z")
    assert rest == "info room made task=t-1 count=3"


def test_json_has_the_facts_as_members() -> None:
    made, failed = (json.loads(line) for line in lines("info", "json"))
    assert (made["message"], made["task"], made["count"]) == ("made", "t-1", 3)
    assert (failed["level"], failed["logger"]) == ("error", "room")
    assert failed["error"].endswith("ValueError: why")


@pytest.mark.parametrize(("level", "first"), [("debug", "looked"), ("error", "failed")])
def test_the_level_decides(level: str, first: str) -> None:
    assert json.loads(lines(level, "json")[0])["message"] == first
    assert logging.getLevelName(level.upper())
