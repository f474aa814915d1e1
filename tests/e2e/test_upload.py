"""`kiln upload` and the commands about file jobs, as a user types them."""

import gzip
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import exits
from support import pages, waiting
from support import up_server as up_support

SAMPLE = pages.ROOT / "examples" / "30-upload" / "sample_small_work.json"
EXPECTED = SAMPLE.with_name("sample_small_work.results.json")
MIB = 1 << 20

MAPPERS = '''
import pathlib
import time

from kilnwork import files

def half(record):
    if record["id"] == "7":
        raise ValueError("seven")
    return {"id": record["id"], "half": record["value1"] / 2}

def unending(record):
    """Its last record waits until the gate file exists."""
    while record["id"] == "21" and not pathlib.Path(GATE + "-of-unending").exists():
        time.sleep(0.02)
    return record

def beside(record):
    return sorted(each.name for each in pathlib.Path().iterdir())

def stuck(record):
    time.sleep(60)

def gated(record):
    """Fails until the gate file exists."""
    if record["id"] == "2" and not pathlib.Path(GATE).exists():
        raise files.FailPart("shut")
    return record["id"]
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    directory = tmp_path_factory.mktemp("up")
    gate = f"GATE = {str(directory / 'gate')!r}\n"
    (directory / "mappers.py").write_text(gate + MAPPERS)
    with up_support.serving(directory, slots=2) as made:
        yield made


def job_of(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip()


def shown(server: up_support.UpServer, job: str) -> Any:
    return json.loads(server.kiln("files", job, "-o", "json").stdout)


def phase(server: up_support.UpServer, job: str) -> str:
    return str(shown(server, job)["phase"])


def test_pipe_of_gzip_becomes_one_ordered_result(server: up_support.UpServer) -> None:
    packed = gzip.compress(SAMPLE.read_bytes())
    done = subprocess.run(
        [up_support.KILN, "upload", "-", "--mapper", "calculator", "--items-per-part", "2",
         "-o", "-"],
        input=packed, capture_output=True, env=server.environment, timeout=40, check=True,
    )  # fmt: skip
    assert done.stdout == EXPECTED.read_bytes()
    assert b"has succeeded: 21 of 21 records" in done.stderr


def test_function_is_uploaded_and_bad_records_are_listed(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    done = server.kiln("upload", str(SAMPLE), "--mapper", "mappers.py:half", "-o", str(out))
    job = job_of(done)
    assert len(out.read_text().splitlines()) == 20
    assert f"1 of 21 records is bad: `kiln results {job} --errors` lists them" in done.stderr
    bad = json.loads(server.kiln("results", job, "--errors").stdout)
    assert (bad["line"], bad["reason"]) == (7, "ValueError: seven (mappers.py:10)")
    assert json.loads(bad["raw"])["id"] == "7"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]


def test_directory_is_uploaded_without_its_tokens(server: up_support.UpServer) -> None:
    assert (server.data / "token").is_file()
    done = server.kiln("upload", str(SAMPLE), "--mapper", "mappers.py:beside", "-o", "-",
                       "--working-dir", str(server.data.parent))  # fmt: skip
    seen = json.loads(done.stdout.splitlines()[0])
    assert "mappers.py" in seen
    assert server.data.name not in seen
    assert f"{server.data} is a data directory of kiln: it is not shipped" in done.stderr


def test_program_maps_the_lines_of_a_text(server: up_support.UpServer, tmp_path: Path) -> None:
    text = tmp_path / "a.log"
    text.write_text("".join(f"line {number}\n" for number in range(1000)))
    done = server.kiln("upload", str(text), "--items-per-part", "100", "-o", "-", "--",
                       "tr", "a-z", "A-Z")  # fmt: skip
    assert done.stdout == text.read_text().upper()


def test_job_is_shown_listed_and_explained(server: up_support.UpServer) -> None:
    done = server.kiln("upload", str(SAMPLE), "--mapper", "identity", "--name", "shown",
                       "--items-per-part", "5", "--watch")  # fmt: skip
    job = job_of(done)
    one = server.kiln("files", job).stdout
    assert one.startswith(f"job {job} is Succeeded; 21 of 21 records and 5 of 5 parts are done.\n")
    assert f"kiln results {job} -o FILE" in one
    [line] = server.kiln("files", "--name", "shown", "--no-headers").stdout.splitlines()
    assert line.split()[:6] == [f"f-{job[8:16]}", "shown", "Succeeded", "5/5", "21/21", "0"]
    parts = server.kiln("files", job, "--parts", "--no-headers").stdout.splitlines()
    assert [part.split()[0] for part in parts] == ["1", "2", "3", "4", "5"]
    assert [part.split()[4] for part in parts] == ["1-5", "6-10", "11-15", "16-20", "21-21"]
    assert f"job {job} is Succeeded" in server.kiln("why", job).stdout
    assert f"job {job} is Succeeded" in server.kiln("wait", job).stdout
    assert job in server.kiln("files", "-o", "name", "--phase", "succeeded").stdout
    bare = server.kiln("delete", "shown", check=False)
    assert (bare.returncode, "kiln delete file/shown" in bare.stderr) == (4, True), bare.stderr
    over = server.kiln("retry", "shown", check=False)
    words = f"job {job} is Succeeded: only a job that failed or was cancelled"
    assert (over.returncode, words in over.stderr) == (1, True), over.stderr
    assert (
        server.kiln("results", job, "--part", "5").stdout
        == server.kiln("results", job).stdout.splitlines(keepends=True)[-1]
    )


def test_result_follows_links_and_can_be_a_device(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("out.jsonl")
    upload = ("upload", str(SAMPLE), "--mapper", "calculator")
    server.kiln(*upload, "-o", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out.jsonl").read_bytes() == EXPECTED.read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server.kiln(*upload, "-o", str(pipe))
    assert os.read(reader, 1 << 16) == EXPECTED.read_bytes()
    os.close(reader)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "out.jsonl", "pipe"]


@pytest.mark.parametrize("size", [1, 9 * MIB], ids=["in one request", "in pieces"])
def test_same_key_creates_one_job(server: up_support.UpServer, tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"a line\n" * (1 + size // 7))
    upload = ("upload", str(file), "--mapper", "identity", "--key", f"only-once-{size}")
    assert job_of(server.kiln(*upload)) == job_of(server.kiln(*upload))


def test_pipe_outlives_the_server(server: up_support.UpServer) -> None:
    """Data read from a pipe is kept until the server has it."""
    line = b"x" * 1023 + b"\n"
    with subprocess.Popen(
        [up_support.KILN, "upload", "-", "--format", "text", "--mapper", "identity", "-o", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=server.environment,
    ) as upload:  # fmt: skip
        assert upload.stdin is not None
        upload.stdin.write(line * (20 * 1024))
        upload.stdin.flush()
        server.kill()
        server.start()
        out, said = upload.communicate(line * (20 * 1024), timeout=40)
    assert upload.returncode == 0, said
    assert out == line * (40 * 1024)


def put(server: up_support.UpServer, path: str, data: bytes, **headers: str) -> Any:
    """Send a raw request with the administrator's token and return the headers of the response."""
    request = urllib.request.Request(
        server.http + path,
        data=data,
        method="PATCH" if "Upload-Offset" in headers else "POST",
        headers={
            "Authorization": f"Bearer {(server.data / 'token').read_text().strip()}",
            **headers,
        },
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.headers


def begun(server: up_support.UpServer, data: bytes, *, size: int) -> str:
    """Start an upload, break it off after some bytes, and return its id."""
    made = put(server, "/files", b"", **{"Upload-Complete": "?0", "Upload-Length": str(size)})
    path = made["Location"].removeprefix(server.http)
    name = {"Upload-Offset": "0", "Upload-Complete": "?0"}
    put(server, path, data, **name, **{"Content-Type": "application/partial-upload"})
    return str(path.partition("?")[0].rpartition("/")[2])


def test_interrupted_upload_continues(server: up_support.UpServer, tmp_path: Path) -> None:
    file = tmp_path / "big.txt"
    file.write_bytes(b"".join(b"%023d\n" % number for number in range(MIB)))  # 24 MiB
    upload = begun(server, file.read_bytes()[: 10 * MIB + 7], size=file.stat().st_size)
    out = tmp_path / "out.txt"
    server.kiln("upload", str(file), "--mapper", "identity", "--resume", upload, "-o", str(out))
    assert out.read_bytes() == file.read_bytes()


def test_interrupted_uploads_are_listed_and_deleted(server: up_support.UpServer) -> None:
    upload = begun(server, bytes(4 * MIB), size=9 * MIB)
    [line] = [
        each.split()
        for each in server.kiln("files", "--uploads", "--no-headers").stdout.splitlines()
        if each.startswith(upload)
    ]
    assert line[1:6] == ["4.0", "MiB", "9.0", "MiB", "false"]
    assert f"upload/{upload}\n" in server.kiln("files", "--uploads", "-o", "name").stdout
    deleted = server.kiln("delete", f"upload/{upload}").stdout
    assert deleted == f"upload {upload} deleted\n"
    assert upload not in server.kiln("files", "--uploads").stdout
    assert server.kiln("delete", f"upload/{upload}", check=False).returncode == 4
    server.kiln("delete", f"upload/{upload}", "--ignore-not-found")


def test_resume_with_another_file_is_refused(server: up_support.UpServer, tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    file.write_text("one\ntwo\n")
    upload = begun(server, b"o" * 100, size=1000)
    done = server.kiln("upload", str(file), "--mapper", "identity", "--resume", upload, check=False)
    assert done.returncode == exits.Exit.FAILED
    assert f"upload {upload} is of a file of 1,000 bytes" in done.stderr


def test_ctrl_c_leaves_the_job_running(server: up_support.UpServer) -> None:
    with subprocess.Popen(
        [up_support.KILN, "upload", str(SAMPLE), "--mapper", "mappers.py:stuck", "--watch",
         "--items-per-part", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server.environment,
        cwd=server.workdir,
    ) as upload:  # fmt: skip
        assert upload.stdout is not None
        job = upload.stdout.readline().strip()
        waiting.wait_until(lambda: phase(server, job) == "Running", what="it runs")
        upload.send_signal(signal.SIGINT)
        _, said = upload.communicate(timeout=40)
    assert upload.returncode == exits.Exit.INTERRUPTED
    assert f"job {job} continues: `kiln wait {job}` waits for it" in said
    server.kiln("cancel", job)
    assert server.kiln("wait", job, check=False).returncode == exits.Exit.TASK_FAILED


def test_job_is_paused_changed_cancelled_redriven_and_deleted(
    server: up_support.UpServer,
) -> None:
    upload = ("upload", str(SAMPLE), "--mapper", "mappers.py:unending", "--items-per-part", "1")
    job = job_of(server.kiln(*upload, "--paused"))
    assert phase(server, job) == "Paused"
    assert server.kiln("resume", job).stdout in {
        f"job {job} is {each}\n" for each in ("Pending", "Running")
    }
    server.kiln("adjust", job, "--parallelism", "1", "--max-failed", "10%")
    found = shown(server, job)
    assert (found["parallelism"], found["spec"]["maxFailedPercent"]) == (1, 10.0)
    assert server.kiln("pause", job).stdout == f"job {job} is Paused\n"
    assert server.kiln("cancel", "--wait", job).stdout == f"job {job} is being stopped\n"
    early = server.kiln("results", job, check=False)
    assert early.returncode == exits.Exit.FAILED
    assert "--partial reads what is done" in early.stderr
    partial = server.kiln("results", job, "--partial").stdout.splitlines()
    assert len(partial) == shown(server, job)["records"]["total"] < 21
    (server.workdir / "gate-of-unending").touch()
    done = server.kiln("redrive", job, "-o", "-")
    assert len(done.stdout.splitlines()) == 21
    server.kiln("adjust", job, "--ttl", "2h")
    assert shown(server, job)["spec"]["ttlSecondsAfterFinished"] == 7200
    assert server.kiln("delete", job).stdout == f"job {job} deleted, with its files\n"
    assert server.kiln("files", job, check=False).returncode == exits.Exit.NOT_FOUND
    server.kiln("delete", job, "--ignore-not-found")


def test_only_failed_parts_run_again(server: up_support.UpServer) -> None:
    upload = ("upload", str(SAMPLE), "--mapper", "mappers.py:gated", "--items-per-part", "1",
              "--retries", "0")  # fmt: skip
    done = server.kiln(*upload, "--watch", check=False)
    job = job_of(done)
    assert done.returncode == exits.Exit.TASK_FAILED
    assert f"`kiln retry {job} --failed` runs again what failed" in done.stderr
    [failed] = server.kiln(
        "files", job, "--parts", "--state", "Failed", "--no-headers"
    ).stdout.splitlines()
    assert failed.split()[:3] == ["2", "Failed", "1"]
    (server.workdir / "gate").touch()
    again = server.kiln("redrive", job, "-o", "-")
    assert [json.loads(line) for line in again.stdout.splitlines()] == [
        str(number) for number in range(1, 22)
    ]
    runs = [
        part.split()[2]
        for part in server.kiln("files", job, "--parts", "--no-headers").stdout.splitlines()
    ]
    assert runs == ["1", "2", *["1"] * 19]


def test_part_tasks_behave_like_other_tasks(server: up_support.UpServer) -> None:
    """Listed, found by name and id, explained, with logs; but only their job runs them again."""
    upload = ("upload", str(SAMPLE), "--mapper", "mappers.py:half", "--items-per-part", "7",
              "--bad-records", "fail", "--retries", "1", "--watch")  # fmt: skip
    job = job_of(server.kiln(*upload, check=False))
    listed = json.loads(server.kiln("tasks", "--all", "-o", "json").stdout)["items"]
    ours = {task["name"]: task for task in listed if task["name"].startswith(f"{job}-")}
    states = {name: (task["state"], task["attempts"]) for name, task in ours.items()}
    assert states == {
        f"{job}-1": ("Failed", 2),
        f"{job}-2": ("Success", 1),
        f"{job}-3": ("Success", 1),
    }
    failed = f"{job}-1"
    word = server.kiln("tasks", "--all", "--state", "Failed", "-o", "name").stdout
    assert ours[failed]["id"] in word.split()
    spawned = server.kiln("tasks", "--all", "--spawned", "--function", ours[failed]["function"])
    assert failed in spawned.stdout
    for name in (failed, ours[failed]["id"]):
        reason = server.kiln("why", name).stdout
        assert f"Task {failed} failed in " in reason
        assert "(Raised) after 2 attempts: RecordsRefused: line 7: ValueError: seven" in reason
        assert "line 7 is bad" in server.kiln("logs", name).stdout
    assert server.kiln("wait", failed, check=False).returncode == exits.Exit.TASK_FAILED
    refused = server.kiln("retry", failed, check=False)
    assert refused.returncode == exits.Exit.FAILED
    assert refused.stderr == (
        f"error: task {failed} is part of file job {job}: `kiln retry {job} --failed` runs "
        "again what has failed\n"
    )
    assert phase(server, job) == "Failed"
    token = (server.data / "token").read_text().strip()
    request = urllib.request.Request(
        f"{server.http}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        samples = response.read().decode()
    assert 'kilnwork_file_jobs{namespace="default",phase="Failed"}' in samples


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere.jsonl", "--mapper", "identity"), 2, "No such file"),
        ((str(SAMPLE),), 2, "what shall be done with the records?"),
        ((str(SAMPLE), "--mapper", "mappers.py:harf"), 2, "it has: beside, gated, half"),
        ((str(SAMPLE), "--mapper", "identity", "--max-failed", "x"), 2, "write a number"),
        ((str(SAMPLE), "--mapper", "identity", "--delimiter", ";;"), 2, "one character"),
        ((str(SAMPLE), "--mapper", "identity", "--name", "a/b"), 2, "no slash"),
        ((str(SAMPLE), "--mapper", "identity", "--name", "a\nb"), 2, "no control characters"),
        ((str(SAMPLE), "--", "printf", "\udcff"), 2, r"'\udcff' is not UTF-8"),
        ((str(SAMPLE), "--mapper", "identity", "--cluster", "\udcff"), 2, "is not UTF-8"),
        ((str(SAMPLE), "--mapper", "identity", "-o", "no/such/directory"), 2, "make it first"),
        (
            (str(SAMPLE), "--mapper", "identity", "-o", "nodirectory/"),
            2,
            "there is no such directory",
        ),
        (("/dev/null", "--mapper", "identity"), 1, "the file is empty"),
        ((str(SAMPLE), "--mapper", "identity", "--resume", "x"), 4, "there is no upload x"),
        ((str(SAMPLE), "--mapper", "identity", "-n", "nowhere"), 4, "nowhere"),
        ((str(SAMPLE), "--mapper", "no.such:f", "--watch"), 2, "No module named 'no'"),
        ((str(SAMPLE), "--mapper", "identity", "--cluster", "none", "--key", "k"), 1, "none"),
        ((str(SAMPLE), "--format", "json", "--mapper", "identity"), 1, "JSON array"),
    ],
)
def test_invalid_arguments_are_explained(
    server: up_support.UpServer, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = server.kiln("upload", *arguments, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_dry_run_makes_nothing(server: up_support.UpServer) -> None:
    before = server.kiln("files", "-o", "name").stdout
    done = server.kiln("upload", "x.tsv.gz", "--mapper", "pkg.mod:f", "--dry-run", check=False)
    assert done.returncode == exits.Exit.USAGE  # there is no such file
    (server.workdir / "x.tsv.gz").touch()
    done = server.kiln("upload", "x.tsv.gz", "--mapper", "pkg.mod:f", "--dry-run")
    assert 'delimiter: "\\t"\n' in done.stdout
    assert "format: csv\n" in done.stdout
    assert server.kiln("files", "-o", "name").stdout == before


def test_missing_server_is_reported(tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(
        [up_support.KILN, "upload", str(SAMPLE), "--mapper", "identity"],
        capture_output=True, text=True, env=environment, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == exits.Exit.UNREACHABLE
