"""The tutorial, followed step by step: its commands, in order, with their stated output.

Also the contents of the data directory in docs/reference/server.md, which only a real server shows.
"""

import subprocess
import time

import pytest

from support import pages, waiting
from support import up_server as up_support

TUTORIAL = pages.DOCS / "tutorial" / "first-tasks.md"

BEFOREHAND = ("make setup && source .venv/bin/activate", "kiln up")
"""What the fixture has done."""

PROMISED = {
    "kiln status": "is ready",
    "kiln run --watch -- sh -c 'echo working": "done",
    "kiln run --name nap": "created",
    "kiln why nap": "nap",
    "kiln cancel nap": "nap is being stopped",
    "kiln why sum": "numbers",
    "kiln wait sum": "condition met",
    "kiln get task sum": "sum: 10",
    "kiln get task flaky": "attempts: 3",
    "kiln get tasks --spawned": "child-3",
    "kiln logs child-2": "I am 2",
    "kiln logs --follow survivor": "has survived",
}
"""What the output holds, by the beginning of the command. It may take a moment to be so."""

LOOKS = ("status", "get", "why", "logs")
"""Commands that change nothing, so that they may be repeated."""

LEASE_LEFT_S = 6.0
"""A restart that is faster than this is noticed by no task; the page says 8 s."""


def shell(server: up_support.UpServer, command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=server.environment,
        cwd=server.workdir,
        timeout=40,
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def type_in(server: up_support.UpServer, command: str) -> None:
    """Run a command and compare its output with the page."""
    promised = [text for start, text in PROMISED.items() if command.startswith(start)]
    if command.split()[1] in LOOKS and promised:
        waiting.wait_until(
            lambda: promised[0] in shell(server, command),
            what=f"`{command}` shows {promised[0]!r}",
            timeout_s=30,
        )
        return
    output = shell(server, command)
    assert all(text in output for text in promised), f"$ {command}\n{output}"


def break_it(server: up_support.UpServer) -> bool:
    """Kill and restart the server under the running task; return True if no lease can have
    expired.
    """
    waiting.wait_until(
        lambda: server.get("tasks", "survivor").get("status", {}).get("state") == "Running",
        what="survivor runs",
    )
    killed = time.monotonic()
    server.kill()
    server.start()
    return time.monotonic() - killed < LEASE_LEFT_S


@pytest.mark.timeout(150)
@pytest.mark.curl
def test_every_command_of_the_page_works(up: up_support.UpServer) -> None:
    commands = pages.console(TUTORIAL.read_text())
    assert [c for c in commands if c in BEFOREHAND] == list(BEFOREHAND)
    for start in PROMISED:
        assert any(c.startswith(start) for c in commands), f"the page has no `{start}`"
    unnoticed = False
    for command in commands:
        if command in BEFOREHAND:
            continue
        type_in(up, command)
        if command.startswith("kiln run --name survivor"):
            unnoticed = break_it(up)
    assert up.get("tasks", "nap")["status"]["state"] == "Killed"
    assert not unnoticed or up.get("tasks", "survivor")["status"]["attempts"] == 1


def test_data_directory_matches_the_reference(up: up_support.UpServer) -> None:
    up.kiln("run", "--watch", "--", "echo", "hello")
    up.kiln("upload", str(pages.DOCS.parent / "README.md"), "--watch", "--", "cat")
    page = (pages.DOCS / "reference" / "server.md").read_text()
    named = " ".join(row.cells[0] for row in pages.table(pages.sections(page, 2)["Files"]))
    found = {
        entry.name.removesuffix("-wal").removesuffix("-shm").removesuffix(".made")
        for entry in up.data.iterdir()
        if not entry.name.startswith(".")
    }
    elsewhere = {"run"}  # when the path is too long for sockets, as those of tests may be
    assert found | elsewhere == set(named.replace("`", "").replace(",", "").split())
    assert up.data.stat().st_mode & 0o777 == 0o700
    for name in ("token", "kubeconfig"):
        assert (up.data / name).stat().st_mode & 0o777 == 0o600
