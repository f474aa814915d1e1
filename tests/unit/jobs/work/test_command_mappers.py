"""Commands as mappers: parallel input and output, exit codes, and no process left after the
attempt."""

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs.work import errors, pipes
from kilnwork.kit import processes
from kilnwork.sdk import errors as sdk_errors
from support import local_parts


def shell(text: str, **more: Any) -> dict[str, Any]:
    return {"mapper": {"command": ["sh", "-c", text]}, **more}


def python(text: str, **more: Any) -> dict[str, Any]:
    return {"mapper": {"command": [sys.executable, "-c", text]}, **more}


def world(tmp_path: Path, content: bytes, **spec: Any) -> local_parts.World:
    return local_parts.World(tmp_path / "job", content, **spec)


LINES = b"".join(b'{"n":%d}\n' % n for n in range(1000))


def test_cat_returns_records_unchanged(tmp_path: Path) -> None:
    for lines in (1000, 300):
        here = world(tmp_path / str(lines), LINES, itemsPerPart=lines, **shell("cat"))
        assert here.map_all() == (LINES, [])


def test_command_gets_no_blank_lines_or_carriage_returns(tmp_path: Path) -> None:
    here = world(tmp_path, b"a\r\n\r\nb\xff\n \nc\0", **shell("cat"))
    commit = here.map()
    assert here.content(commit.output) == b"a\nb\xff\nc\0\n"
    assert commit.records == filejobs.Records(total=5, succeeded=3, skipped=2)


def test_command_gets_blank_lines_that_are_records(tmp_path: Path) -> None:
    here = world(tmp_path, b"a\n\n b\n", **shell("cat", input={"blank": "record"}))
    assert here.map_all() == (b"a\n\n b\n", [])


def test_command_gets_csv_rows_as_json(tmp_path: Path) -> None:
    content = b'a,b\n1,"x\ny"\n2\n3,z\n'
    here = world(tmp_path, content, **shell("cat", input={"format": "csv"}))
    found, bad = here.map_all()
    rows = [json.loads(line) for line in found.splitlines()]
    assert rows == [{"a": "1", "b": "x\ny"}, {"a": "3", "b": "z"}]
    assert [(each["line"], each["raw"]) for each in bad] == [(2, "2")]


def test_command_may_print_more_or_fewer_lines(tmp_path: Path) -> None:
    here = world(tmp_path, LINES, **shell("wc -l; echo; printf end"))
    commit = here.map()
    assert here.content(commit.output).split() == [b"1000", b"end"]
    assert commit.records == filejobs.Records(total=1000, succeeded=1000)


def test_command_environment_names_job_and_part(tmp_path: Path) -> None:
    text = 'cat >/dev/null; echo "$KILN_JOB $KILN_PART $KILN_RUN $KILN_ATTEMPT"'
    here = world(tmp_path, LINES, itemsPerPart=600, **shell(text))
    assert here.content(here.map(2, attempt=4, run=3).output) == b"job 2 3 4\n"


def test_command_reports_bad_records_by_number(tmp_path: Path) -> None:
    text = """
        n=0
        while read line; do
            n=$((n + 1))
            case $line in
                bad*) echo "$n is $line" >&3;;
                worse*) echo "$n" >> "$KILN_BAD_RECORDS";;
                *) echo "$line!";;
            esac
        done
    """
    content = b"a\n\nbad1\n\n\nb\nworse\nc\nbad2\n"
    here = world(tmp_path, content, itemsPerPart=100, **shell(text))
    commit = here.map()
    assert here.content(commit.output) == b"a!\nb!\nc!\n"
    assert commit.records == filejobs.Records(total=9, succeeded=3, failed=3, skipped=3)
    assert here.reports(commit) == [
        {"line": 3, "reason": "is bad1", "raw": "bad1"},
        {"line": 7, "reason": "refused by the command", "raw": "worse"},
        {"line": 9, "reason": "is bad2", "raw": "bad2"},
    ]
    parts = world(tmp_path / "parts", content, itemsPerPart=2, **shell(text))
    assert parts.map_all() == (b"a!\nb!\nc!\n", here.reports(commit))


def test_reported_record_fails_part_with_policy_fail(tmp_path: Path) -> None:
    here = world(tmp_path, LINES, **shell("cat; echo '7 no good' >&3", badRecords="fail"))
    with pytest.raises(errors.RecordsRefused, match="line 7: no good"):
        here.map()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("none 1", "'none 1' on descriptor 3 is no report"),
        ("0 x", "'0 x' on descriptor 3"),
        ("1001 x", "reported record 1001 as bad, but it was given 1000"),
    ],
)
def test_invalid_reports_fail_the_part(tmp_path: Path, said: str, message: str) -> None:
    here = world(tmp_path, LINES, **shell(f"cat; echo '{said}' >&3"))
    with pytest.raises(errors.CommandFailed, match=message):
        here.map()
    assert here.stored() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat; exit 3", "ended with exit code 3"),
        ("exit 3", "ended with exit code 3"),
        ("cat; kill -TERM $$", "was ended by SIGTERM"),
        ("cat; kill -KILL $$", "was ended by SIGKILL: by another process, or"),
        ("head -c 5", "exit code 0, but did not read"),
        ("true", "exit code 0, but did not read"),
        ("exec <&-; sleep 0.1", "exit code 0, but did not read"),
    ],
)
@pytest.mark.parametrize("count", [1, 300_000])
def test_command_must_read_all_input_and_exit_with_0(
    tmp_path: Path, text: str, message: str, count: int
) -> None:
    here = world(tmp_path, b'{"n": 1}\n' * count * 2, itemsPerPart=10**6, **shell(text))
    with pytest.raises(errors.CommandFailed, match=message):
        here.map()
    assert here.stored() == []


def test_full_pipes_do_not_block_each_other(tmp_path: Path) -> None:
    """One command prints everything before it reads; another reads everything before it prints."""
    text = (
        "import sys; out = sys.stdout.buffer; out.write(b'x' * (5 << 20) + b'\\n'); out.flush();"
        "data = sys.stdin.buffer.read(); out.write(data * 3)"
    )
    content = b"y" * 99 + b"\n"
    here = world(tmp_path, content * 50_000, **python(text))
    found, _ = here.map_all()
    assert found == b"x" * (5 << 20) + b"\n" + content * 150_000


def test_memory_of_command_mapper_is_bounded(tmp_path: Path) -> None:
    """64 MiB go through a command whose output is twice as large."""
    content = b"z" * 1023 + b"\n"
    here = world(tmp_path, content * (64 << 10), **shell("sed 'p'"))
    here.map()
    here = world(tmp_path / "again", content * (64 << 10), **shell("sed 'p'"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    commit = here.map()
    assert commit.output is not None
    assert commit.output.bytes == 128 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_stderr_of_command_is_task_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    world(tmp_path, LINES, **shell("echo said >&2; cat")).map()
    assert capfd.readouterr().err == "said\n"


def test_child_that_keeps_printing_is_waited_for(tmp_path: Path) -> None:
    here = world(tmp_path, LINES, **shell("cat >/dev/null; (sleep 0.2; echo late) & exit 0"))
    assert here.content(here.map().output) == b"late\n"


def test_child_that_holds_stdout_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "PATIENCE_S", 0.2)
    here = world(tmp_path, LINES, **shell("cat >/dev/null; sleep 1000 & exit 0"))
    with pytest.raises(errors.CommandFailed, match="keeps its stdout open"):
        here.map()
    assert_nothing_left()


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Make this process a subreaper, as a slot is; other tests do not need it."""
    processes.become_subreaper()
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # prctl(2), PR_SET_CHILD_SUBREAPER


@pytest.mark.usefixtures("subreaper")
def test_all_child_processes_are_killed_at_the_end(tmp_path: Path) -> None:
    """Including background processes, processes in other sessions, and those that ignore
    signals."""
    text = """
        cat
        sleep 1000 >/dev/null 2>&1 &
        setsid sh -c 'trap "" TERM INT HUP; sleep 1000; sleep 1000' >/dev/null 2>&1 &
        setsid setsid sleep 1000 >/dev/null 2>&1 &
        sleep 0.1
    """
    here = world(tmp_path, LINES, **shell(text))
    assert here.content(here.map().output) == LINES
    assert_nothing_left()


@pytest.mark.usefixtures("subreaper")
def test_daemon_with_cleared_environment_is_killed(tmp_path: Path) -> None:
    """It has no environment, its own session, and its parents are dead."""
    pid_file = tmp_path / "pid"
    text = f"cat; env -i setsid sh -c 'sleep 1000 >/dev/null 2>&1 3>&1 & echo $! >{pid_file}'"
    here = world(tmp_path, LINES, **shell(text))
    assert here.content(here.map().output) == LINES
    assert processes.identify(int(pid_file.read_text())) is None


def test_command_is_killed_when_task_is_cancelled(tmp_path: Path) -> None:
    here = world(tmp_path, LINES, **shell("trap '' TERM; sleep 1000 & wait; sleep 1000"))
    until = time.monotonic() + 0.3

    def on_progress(_: int) -> None:
        if time.monotonic() > until:
            raise sdk_errors.Cancelled("the task was asked to stop")

    with pytest.raises(sdk_errors.Cancelled):
        here.map_by(on_progress)
    assert time.monotonic() < until + 30  # not 1000
    assert here.stored() == []
    assert_nothing_left()


def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    here = world(tmp_path, LINES, **shell("cat"))
    here.map()
    before = count()
    here.map(run=2)
    with pytest.raises(errors.CommandFailed):
        world(tmp_path / "bad", LINES, **shell("exit 1")).map()
    with pytest.raises(errors.MapperUnusable):
        world(tmp_path / "no", LINES, mapper={"command": ["/nowhere"]}).map()
    assert count() == before


def assert_nothing_left() -> None:
    """Check that no process of our commands is left; other pytest workers have their own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    ours = f"PYTEST_XDIST_WORKER={worker}".encode() if worker else b""
    marked = [
        pid
        for pid in processes.all_pids()
        if f"{pipes.MARKER}=".encode() in (found := _environ(pid))
        and (not ours or ours in found.split(b"\0"))
    ]
    assert marked == []
    zombies = [
        pid
        for pid, stat in processes.read_all().items()
        if stat.parent == os.getpid() and not stat.running
    ]
    assert zombies == []


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
