"""docs/reference/mappers.md matches the code: variables, limits, names; its script works."""

import re
from pathlib import Path

from kilnwork.jobs.work import (
    builtins,
    command_mappers,
    function_mappers,
    mapper_interface,
    output_writer,
    pipes,
)
from support import local_parts, pages

PAGE = (pages.DOCS / "reference" / "mappers.md").read_text()
SECTIONS = pages.sections(PAGE, 2)
WORDS = " ".join(PAGE.split())


def test_every_variable_of_a_command_is_in_the_table(tmp_path: Path) -> None:
    named = set(re.findall(r"`(KILN_[A-Z_]+)`", SECTIONS["Commands"]))
    text = "import os, sys; sys.stdin.read(); print(*os.environ, sep='\\n')"
    here = local_parts.World(
        tmp_path, b"{}\n", mapper={"command": ["env", "-u", "KILN_X", "python3", "-c", text]}
    )
    inherited = set(command_mappers.environment("", part=1, run=1, attempt=1)) - named
    found = set(here.content(here.map().output).decode().split())
    assert {name for name in found if name.startswith("KILN_")} - inherited == named


def test_limits_are_those_of_the_code() -> None:
    assert f"ends early at {function_mappers.BATCH_BYTES >> 20} MiB" in WORDS
    assert f"at most {output_writer.MAX_REASON} characters" in WORDS
    assert f"the first {mapper_interface.TRACEBACKS} tracebacks of a part" in WORDS
    assert f"prints nothing for {pipes.PATIENCE_S:g} seconds" in WORDS
    most_line, most = command_mappers.MAX_LINE >> 10, command_mappers.MAX_REPORT_BYTES >> 20
    assert f"at most {most_line} KiB, all lines of a part together {most} MiB" in WORDS


def test_built_in_mappers_are_described() -> None:
    assert set(re.findall(r"^`(\w+)`[ ,]", SECTIONS["Built-in mappers"], re.MULTILINE)) == set(
        builtins.NAMES
    )


def test_script_reports_bad_records_by_number(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    here = local_parts.World(
        tmp_path,
        b"a@b\n\nnone\nc@d\n",
        input={"format": "text"},
        mapper={"command": ["sh", "-c", script]},
    )
    found, bad = here.map_all()
    assert found == b"b\nd\n"
    assert bad == [{"line": 3, "reason": "no @ in it", "raw": "none"}]
