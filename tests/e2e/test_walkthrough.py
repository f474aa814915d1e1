"""docs/how-to/migrate-from-aksjobscheduler.md, followed step by step: the README of its system.

The curl commands are those of that README, except for address, file and id.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import pages, waiting
from support import up_server as up_support

PAGE = (pages.DOCS / "how-to" / "migrate-from-aksjobscheduler.md").read_text()
COMMANDS = [command for command in pages.console(PAGE) if command != "kiln up --source-compat"]
EXAMPLE = pages.ROOT / "examples" / "30-upload"

ITEMS = 1_000
LINES = 12_500
ON_THE_PAGE = "2026-11-4610526630846599105"
OLD_FIELDS = {
    "id", "status", "startTime", "completionTime", "succeeded", "parallelism", "parts",
    "completions", "storageContainer", "storageBlobPrefix", "runningOnAci",
}  # fmt: skip
"""Of the documents in that README."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    """Yield a server whose parts are small enough for a test, set by aksjobscheduler's
    variable.
    """
    directory = tmp_path_factory.mktemp("walk")
    generate = [sys.executable, str(EXAMPLE / "generate.py"), str(LINES)]
    (directory / "sample_large_work.json").write_bytes(subprocess.check_output(generate))
    variables = {"ITEMSPERJOB": str(ITEMS)}
    with up_support.serving(directory, options=["--source-compat"], variables=variables) as made:
        yield made


def shell(server: up_support.UpServer, command: str) -> str:
    """Return the output of a command of the page, run in the server's directory."""
    typed = command.replace("http://127.0.0.1:7444", server.http)
    done = subprocess.run(
        ["bash", "-c", typed], capture_output=True, text=True, env=server.environment,
        cwd=server.workdir, timeout=40, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"$ {typed}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands(start: str) -> list[str]:
    """Return the commands of the page that begin with `start`."""
    return [command for command in COMMANDS if command.startswith(start)]


def document(server: up_support.UpServer, job: str) -> Any:
    """Return a job's document, as a client without a token gets it."""
    return json.loads(shell(server, f"curl -sS {server.http}/jobs/{job}"))


@pytest.mark.curl
def test_readme_commands_work_in_order(server: up_support.UpServer) -> None:
    [post] = commands("curl -X POST")
    job = shell(server, post)
    assert re.fullmatch(r"20\d\d-\d\d-\d+", job), "the id alone, as text"
    waiting.wait_until(
        lambda: document(server, job)["status"] in ("Complete", "Failed"), what="the job is over"
    )
    for look in (*commands("curl http://127.0.0.1:7444/jobs/"), *commands("kiln")):
        shell(server, look.replace(ON_THE_PAGE, job))
    found = document(server, job)
    assert set(found) >= OLD_FIELDS
    assert (found["status"], found["parts"], found["runningOnAci"]) == ("Complete", 13, False)
    assert found["completions"] == found["succeeded"] == 14
    assert found["parallelism"] == 2
    assert found["storageContainer"] == "jobs"

    [part] = commands('curl "http://127.0.0.1:7444/jobs/')
    shell(server, part.replace(ON_THE_PAGE, job))
    whole = (server.workdir / "results.json").read_bytes()
    last = (server.workdir / "results-part-13.json").read_bytes()
    assert whole.count(b"\n") == LINES
    assert whole.endswith(last)
    assert last.count(b"\n") == LINES - 12 * ITEMS
    ids = [json.loads(line)["id"] for line in whole.splitlines()]
    assert ids == [str(number) for number in range(1, LINES + 1)], "in the order of the file"


@pytest.mark.curl
def test_client_without_a_token_runs_no_code(server: up_support.UpServer) -> None:
    for what in ("mapper=identity", "command=id", "reducer=identity"):
        status = shell(
            server,
            "curl -sS -o /dev/null -w '%{http_code}' -F file=@sample_large_work.json "
            f"'{server.http}/jobs?{what}'",
        )
        assert status in ("400", "401", "403"), what
    [with_token] = commands('curl -H "Authorization')
    assert re.fullmatch(r"20\d\d-\d\d-\d+", shell(server, with_token))
    for path in ("/v1/endpoints", "/metrics", "/files"):
        url = f"{server.http}{path}"
        assert shell(server, f"curl -sS -o /dev/null -w '%{{http_code}}' {url}") == "401", path


@pytest.mark.curl
def test_sample_equals_that_of_the_source_project(server: up_support.UpServer) -> None:
    for script in ("curl.sh", "run.sh"):
        shell(server, f"{EXAMPLE / script} {server.http}")


def test_browser_page_cannot_post(server: up_support.UpServer) -> None:
    status = shell(
        server,
        "curl -sS -o /dev/null -w '%{http_code}' -H 'Origin: http://evil.example' "
        f"-F file=@sample_large_work.json {server.http}/jobs",
    )
    assert status == "401"


def test_tls_clients_need_a_token(server: up_support.UpServer) -> None:
    port = int(server.http.rpartition(":")[2]) - 1
    url = f"https://127.0.0.1:{port}/jobs"
    assert shell(server, f"curl -sSk -o /dev/null -w '%{{http_code}}' {url}") == "401"


def test_every_command_of_the_page_was_run() -> None:
    known = (
        "curl -X POST", "curl http://127.0.0.1:7444/jobs/", "kiln", 'curl -H "Authorization',
        'curl "http://127.0.0.1:7444/jobs/',
    )  # fmt: skip
    assert [command for command in COMMANDS if not command.startswith(known)] == []
    assert Path(EXAMPLE / "sample_small_work.json").is_file()
