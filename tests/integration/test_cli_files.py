"""File jobs have the same names in every command: an id, a name, or `file/…`; also `kiln get
files`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.cli import exits
from support import in_process_cli, pages, waiting
from support import up_server as up_support

SAMPLE = pages.ROOT / "examples" / "30-upload" / "sample_small_work.json"

MAPPERS = """
import time

def loud(record):
    if record["id"] == "7":
        raise ValueError("seven")
    print("record", record["id"])
    return record["id"]

def stuck(record):
    time.sleep(60)

def broken(record):
    return record["nope"]

NUMBER = 7
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    directory = tmp_path_factory.mktemp("up")
    (directory / "mappers.py").write_text(MAPPERS)
    with up_support.serving(directory, slots=2) as made:
        yield made


@pytest.fixture
def kiln(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> in_process_cli.Kiln:
    monkeypatch.chdir(server.workdir)
    return in_process_cli.kiln_of(server.data, monkeypatch, capfd)


@pytest.fixture(scope="module")
def job(server: up_support.UpServer) -> str:
    """Return the id of a finished job of five parts called `loud`."""
    done = server.kiln("upload", str(SAMPLE), "--mapper", "mappers.py:loud", "--name", "loud",
                       "--items-per-part", "5", "--watch")  # fmt: skip
    return done.stdout.strip()


APART = """
{apiVersion: v1, kind: Namespace, metadata: {name: apart}}
---
apiVersion: kilnwork.dev/v1alpha1
kind: TaskCluster
metadata: {name: default, namespace: apart}
spec: {}
"""


def test_job_without_a_good_record_is_reported_by_every_command(
    kiln: in_process_cli.Kiln,
) -> None:
    upload = ("upload", str(SAMPLE), "--mapper", "mappers.py:broken")
    done = kiln(*upload, "--watch")
    job = done.out.strip()
    loud = (
        f"WARNING: NO RECORD HAS A RESULT, 21 of 21 records are bad: `kiln results {job} --errors` "
        "lists them\n  the first, line 1: KeyError: 'nope' (mappers.py:14)\n"
    )
    assert (done.code, loud in done.err) == (0, True), done.err
    waited = kiln("wait", job)
    assert (waited.code, loud in waited.err) == (0, True), waited.err
    shown = kiln("files", job).out
    assert "all 21 records are bad" in shown
    assert "first bad line 1: KeyError: 'nope' (mappers.py:14)\n" in shown
    few = kiln(*upload, "--max-failed", "20", "--watch")
    assert (few.code, "KeyError: 'nope'" in few.err) == (exits.Exit.TASK_FAILED, True)


def upload_stuck(kiln: in_process_cli.Kiln, name: str) -> str:
    return kiln("upload", str(SAMPLE), "--mapper", "mappers.py:stuck", "--name", name).out.strip()


@pytest.mark.parametrize("word", ["{}", "f-{short}", "loud", "file/{}", "files/loud"])
def test_every_command_accepts_every_form_of_job_name(
    kiln: in_process_cli.Kiln, job: str, word: str
) -> None:
    word = word.format(job, short=job[8:16])
    assert f"job {job} is Succeeded" in kiln("wait", word).out
    assert f"job {job} is Succeeded" in kiln("why", word).out
    assert f"job {job} is Succeeded" in kiln("files", word).out
    assert kiln("results", word, "--part", "1").out.startswith('"1"\n"2"\n')
    assert kiln("cancel", word).out == f"job {job} is already Succeeded\n"
    assert "record 1\n" in kiln("logs", f"{word}-1").out
    assert "succeeded in" in kiln("why", f"{word}-2").out


def test_logs_of_a_job_are_those_of_a_part(kiln: in_process_cli.Kiln, job: str) -> None:
    done = kiln("logs", "loud")
    assert "record 1\n" in done.out
    assert f"this is part 1 of 5; `kiln logs {job}-2` shows the next" in done.err


def test_get_lists_file_jobs(kiln: in_process_cli.Kiln, job: str) -> None:
    rows, same = (kiln(*words).out.splitlines() for words in (("get", "files"), ("files",)))
    but_age = slice(0, -1)  # of the one a moment later
    assert [each.split()[but_age] for each in rows] == [each.split()[but_age] for each in same]
    assert job in kiln("get", "files", "-o", "name").out
    one = json.loads(kiln("get", "file", "loud", "-o", "json").out)
    assert one["id"] == job == json.loads(kiln("get", "file/loud", "-o", "json").out)["id"]
    two = json.loads(kiln("get", "files", "loud", job, "-o", "json").out)
    assert [each["id"] for each in two["items"]] == [job, job]
    mixed = kiln("get", "tasks,files")
    assert (mixed.code, "`kiln files`" in mixed.err) == (exits.Exit.USAGE, True)


def test_parts_are_listed_by_state_in_any_case(kiln: in_process_cli.Kiln, job: str) -> None:
    some = kiln("files", job, "--parts", "--state", "succeeded", "--no-headers").out
    assert len(some.splitlines()) == 5
    none = kiln("files", job, "--parts", "--state", "Failed")
    assert (none.code, none.out, none.err) == (0, "", f"job {job} has no part that is Failed\n")
    assert "known are Waiting" in kiln("files", job, "--parts", "--state", "nonsense").err


def test_job_objects_are_distinguished_from_file_jobs(kiln: in_process_cli.Kiln) -> None:
    for line in ("why job/loud", "logs job/loud", "cancel job/loud", "jobs loud"):
        reported = kiln(*line.split())
        assert (reported.code, "`kiln files`" in reported.err) == (exits.Exit.NOT_FOUND, True), line
    none = kiln("get", "jobs")
    assert (none.code, "`kiln files`" in none.err) == (exits.Exit.OK, True)


@pytest.mark.parametrize("command", ["files", "results {} --part 1"])
def test_closed_output_pipe_is_not_an_error(
    server: up_support.UpServer, job: str, command: str
) -> None:
    arguments = [up_support.KILN, *command.format(job).split()]

    def run(argv: list[str], stdout: int | None) -> tuple[int, str]:
        done = subprocess.run(
            argv, stdout=stdout, stderr=subprocess.PIPE, env=server.environment, check=False
        )
        return done.returncode, done.stderr.decode()

    full = os.open("/dev/full", os.O_WRONLY)
    output = "error: cannot write the output: No space left on device\n"
    assert run(arguments, full) == (exits.Exit.FAILED, output)
    reading, writing = os.pipe()
    os.close(reading)
    assert run(arguments, writing) == (exits.Exit.OK, "")
    assert run(["sh", "-c", 'exec "$@" >&-', "sh", *arguments], None) == (exits.Exit.OK, "")
    os.close(full)
    os.close(writing)


def test_stopping_and_deleting_by_name(kiln: in_process_cli.Kiln) -> None:
    first, second = upload_stuck(kiln, "twice"), upload_stuck(kiln, "twice")
    short = filejobs.short_id(second)
    which = f"2 file jobs are called 'twice': name one by its id, the newest first: {short}, f-"
    for line in (
        "pause twice", "resume file/twice", "cancel twice", "wait twice", "why twice", "logs twice",
        "files twice", "results twice", "redrive twice", "adjust twice --priority 1",
        "files twice --parts", "delete file/twice", "delete twice",
    ):  # fmt: skip
        refused = kiln(*line.split())
        assert (refused.code, which in refused.err) == (exits.Exit.USAGE, True), (line, refused)
    assert kiln("pause", short).out == f"job {second} is Paused\n"
    assert kiln("resume", f"file/{short}").out.startswith(f"job {second} is ")
    stopped = kiln("cancel", short, "--wait")
    assert stopped.out == f"job {second} is being stopped\n"
    assert kiln("wait", short, "--for=final").code == exits.Exit.OK
    assert kiln("wait", short).code == exits.Exit.TASK_FAILED
    assert kiln("delete", f"file/{second}").out.startswith(f"job {second} deleted")
    bare = kiln("delete", "twice")
    assert (bare.code, "`kiln delete file/twice`" in bare.err) == (4, True), bare.err
    assert kiln("delete", "file", "twice").out.startswith(f"job {first} deleted")
    gone = kiln("delete", "file/twice")
    assert gone.code == exits.Exit.NOT_FOUND
    assert kiln("delete", "file/twice", "--ignore-not-found").out == ""


def test_delete_all_deletes_all_file_jobs_of_a_namespace(
    kiln: in_process_cli.Kiln, tmp_path: Path
) -> None:
    (tmp_path / "apart.yaml").write_text(APART)
    kiln("apply", "-f", str(tmp_path / "apart.yaml"))
    made = [
        kiln("upload", str(SAMPLE), "--mapper", "identity", "-n", "apart", "--paused")
        for _ in range(2)
    ]
    unsaid = kiln("delete", "files", "-n", "apart")
    assert (unsaid.code, "--all" in unsaid.err) == (exits.Exit.USAGE, True)
    deleted = kiln("delete", "files", "--all", "-n", "apart", "-o", "name").out
    assert set(deleted.split()) == {each.out.strip() for each in made}
    assert "no file jobs" in kiln("files", "-n", "apart").err


def test_names_of_jobs_are_completed(server: up_support.UpServer, job: str) -> None:
    for command, typed, wanted in (
        ("results", "lo", "loud"), ("wait", job[:9], job), ("why", "file/lo", "file/loud"),
        ("get", "files lo", "loud"), ("delete", "file/lo", "file/loud"), ("get", "fil", "files"),
    ):  # fmt: skip
        words = f"kiln {command} {typed}"
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = {**server.environment, **asked, "_KILN_COMPLETE": "bash_complete"}

        def offered(given: dict[str, str] = environment) -> str:
            """After a second it would rather offer nothing: one may press Tab again."""
            return subprocess.run(
                [sys.executable, "-m", "kilnwork"],
                capture_output=True, text=True, check=False, env=given,
            ).stdout  # fmt: skip

        found = waiting.wait_until(offered, what=f"{words!r} is completed")
        assert f"plain,{wanted}\n" in found, words


@pytest.mark.parametrize(
    ("mapper", "words"),
    [
        ("nosuch.module:row", "No module named 'nosuch'"),
        ("mappers:missing", "has no attribute 'missing'"),
        ("mappers:NUMBER", "is a int, not a function"),
        ("lacking:row", "Install nosuchpackage where the workers run"),
    ],
)
def test_mapper_that_workers_cannot_import_is_refused_before_the_upload(
    kiln: in_process_cli.Kiln, server: up_support.UpServer, mapper: str, words: str
) -> None:
    (server.workdir / "lacking.py").write_text("import nosuchpackage\n")
    before = kiln("files", "-o", "name").out
    refused = kiln("upload", str(SAMPLE), "--mapper", mapper)
    assert (refused.code, refused.out, words in refused.err) == (exits.Exit.USAGE, "", True), (
        refused.err
    )
    assert kiln("files", "-o", "name").out == before
    reducer = kiln("upload", str(SAMPLE), "--mapper", "identity", "--reducer", mapper)
    assert (reducer.code, words in reducer.err) == (exits.Exit.USAGE, True)


def test_mapper_is_looked_up_as_workers_do(kiln: in_process_cli.Kiln, tmp_path: Path) -> None:
    assert kiln("upload", str(SAMPLE), "--mapper", "mappers:loud", "--watch").code == 0
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "sent_along.py").write_text("def row(record):\n    return 1\n")
    with_code = ("--mapper", "sent_along:row", "--working-dir", str(tmp_path / "sent"))
    assert kiln("upload", str(SAMPLE), *with_code, "--watch").code == 0
