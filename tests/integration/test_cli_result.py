"""`kiln result`: the bytes of a result, of commands and Python calls, inline and in blobs."""

import base64
import hashlib
import json
import pickle
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click import shell_completion

import kilnwork as kiln
from kilnwork.cli import main
from kilnwork.kube import config
from support import up_server as up_support
from support import waiting

API = "kilnwork.dev/v1alpha1"

LARGE = 200_000
"""More than the journal keeps inline."""


@kiln.task
def text(length: int) -> str:
    return "x" * length


@kiln.task
def pair(number: int) -> tuple[int, set[int]]:
    return number, {number}


@kiln.task
def count(number: int) -> Iterator[int]:
    yield from range(number)


@kiln.task
def fail() -> None:
    raise ValueError("no luck")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        yield made


def run_task(up: up_support.UpServer, name: str, script: str, *options: str) -> None:
    up.kiln("run", "--watch", "--name", name, *options, "--", "sh", "-c", script)


def apply(up: up_support.UpServer, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name}
    task = {"apiVersion": API, "kind": "Task", "metadata": metadata, "spec": spec}
    up.kiln("apply", "-f", "-", stdin=json.dumps(task))


def patch_status(up: up_support.UpServer, name: str, status: dict[str, Any]) -> None:
    """Write the status as a manager would."""
    settings = config.load(up.data / "kubeconfig")
    request = urllib.request.Request(
        f"{settings.server}/apis/{API}/namespaces/default/tasks/{name}/status",
        data=json.dumps({"status": status}).encode(),
        method="PATCH",
        headers={
            "Authorization": f"Bearer {settings.token}",
            "Content-Type": "application/merge-patch+json",
        },
    )
    tls = ssl.create_default_context(cadata=settings.ca_data)
    urllib.request.urlopen(request, timeout=30, context=tls).close()


def suspended(up: up_support.UpServer, name: str) -> None:
    def look() -> bool:
        return bool(up.get("tasks", name).get("status", {}).get("reason") == "Suspended")

    waiting.wait_until(look, what=f"{name} is suspended")


def result(up: up_support.UpServer, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [up_support.KILN, "result", *words],
        env=up.environment, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_json_of_a_command_is_printed(up: up_support.UpServer) -> None:
    run_task(up, "json", 'echo "{\\"a\\":  1}" > "$KILN_OUTPUT"')
    found = result(up, "json")
    assert (found.returncode, found.stdout) == (0, b'{"a":  1}\n')


def test_result_file_has_only_the_bytes(up: up_support.UpServer, tmp_path: Path) -> None:
    run_task(up, "file", 'printf "[1]" > "$KILN_OUTPUT"')
    target = tmp_path / "result.json"
    found = result(up, "file", "-o", str(target))
    assert (found.returncode, found.stdout, target.read_bytes()) == (0, b"", b"[1]")


def test_task_without_a_result_prints_nothing(up: up_support.UpServer) -> None:
    run_task(up, "silent", "true")
    found = result(up, "silent")
    assert (found.returncode, found.stdout) == (0, b"")
    assert b"task silent has no result" in found.stderr


def test_unfinished_or_failed_task_has_no_result(up: up_support.UpServer) -> None:
    up.kiln("run", "--name", "goes-on", "--", "sleep", "600")
    early = result(up, "goes-on")
    assert early.returncode == 1
    assert b"has no result yet: `kiln wait goes-on` waits" in early.stderr
    up.kiln("cancel", "--wait", "goes-on")
    assert result(up, "goes-on").returncode == 6
    unknown = result(up, "missing")
    assert (unknown.returncode, b"`kiln tasks` lists" in unknown.stderr) == (4, True)


def test_result_of_a_waiting_task_names_its_input(up: up_support.UpServer) -> None:
    apply(up, "waits", {"command": ["true"], "inputObject": "not-there"})
    found = result(up, "task/waits")
    assert found.returncode == 1
    assert b"task waits is Pending" in found.stderr
    assert b"and has no result yet: `kiln wait waits` waits" in found.stderr


def test_small_result_is_read_from_status_if_the_journal_lost_it(
    up: up_support.UpServer,
) -> None:
    for name, kept in (("small", {"value": [1, "a"]}), ("large", {"sizeBytes": 100_000})):
        apply(up, name, {"command": ["true"], "suspend": True})
        suspended(up, name)
        whole = {"mediaType": "application/json", "sizeBytes": 7, **kept}
        patch_status(up, name, {"state": "Success", "run": 1, "result": whole})
    small, large = result(up, "small"), result(up, "large")
    assert (small.returncode, small.stdout) == (0, b'[1,"a"]\n')
    assert (large.returncode, b"the journal that held it was lost" in large.stderr) == (4, True)


def test_result_of_a_file_job_name_prints_its_results(
    up: up_support.UpServer, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_text("a\nb\n")
    up.kiln("upload", str(tmp_path / "f.txt"), "--name", "letters", "--watch", "--", "cat")
    found = result(up, "letters")
    assert (found.returncode, b"`kiln results letters`" in found.stderr) == (4, True)


def test_call_results_are_json_pickles_and_lists(
    up: up_support.UpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(up.data / "kubeconfig"))
    with kiln.connect():
        large, odd, many, bad = text.submit(LARGE), pair.submit(3), count.submit(3), fail.submit()
        for future in (large, odd, many, bad):
            future.exception(60)
    found = result(up, large.id)
    assert found.stdout == b'"' + b"x" * LARGE + b'"\n'
    assert result(up, many.id).stdout == b"[0,1,2]\n"
    target = tmp_path / "odd"
    assert result(up, odd.id, "-o", str(target)).returncode == 0
    assert pickle.loads(target.read_bytes()) == (3, {3})  # noqa: S301 - our own
    failed = result(up, bad.id)
    assert (failed.returncode, b"ValueError: no luck" in failed.stderr) == (6, True)


def test_response_has_type_and_digest(up: up_support.UpServer) -> None:
    run_task(up, "typed", 'printf "[2]" > "$KILN_OUTPUT"')
    token = (up.data / "token").read_text().strip()
    request = urllib.request.Request(
        f"{up.http}/v1/namespaces/default/tasks/typed/result",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.read() == b"[2]"
    digest = base64.b64encode(hashlib.sha256(b"[2]").digest()).decode()
    assert response.headers["content-type"] == "application/json"
    assert response.headers["repr-digest"] == f"sha-256=:{digest}:"


def test_result_is_read_from_a_directory_of_kiln_start(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    with kiln.start(directory, slots=1):
        small, large = text.submit(3), text.submit(LARGE)
        assert large.result(60) == "x" * LARGE
        assert small.result(60) == "xxx"
    for future, wanted in ((small, b'"xxx"\n'), (large, b'"' + b"x" * LARGE + b'"\n')):
        found = subprocess.run(
            [up_support.KILN, "result", future.id, "--from", str(directory)],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert (found.returncode, found.stdout) == (0, wanted)
    short = subprocess.run(
        [up_support.KILN, "result", small.id[-8:], "--data", str(directory)],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (short.returncode, short.stdout) == (0, b'"xxx"\n'), short.stderr
    several = subprocess.run(
        [up_support.KILN, "result", small.id[:6], "--data", str(directory)],
        capture_output=True, timeout=60, check=False, text=True,
    )  # fmt: skip
    assert (several.returncode, "write more of it" in several.stderr) == (1, True), several.stderr
    unknown = subprocess.run(
        [up_support.KILN, "result", "missing", "--from", str(directory)],
        capture_output=True, timeout=60, check=False, text=True,
    )  # fmt: skip
    assert (unknown.returncode, "has no task 'missing'" in unknown.stderr) == (4, True)
    for future in (small, large):
        assert f"{future.id} ({text.__module__}:text, Success)" in unknown.stderr
    assert small.id in completions(
        "--from", str(directory), small.id[:-1]
    )  # others differ in the last
    assert completions("--from", str(tmp_path), "") == []


def completions(*words: str) -> list[str]:
    """Return the shell completions of `kiln result WORDS`, whose last word is incomplete."""
    asked = shell_completion.ShellComplete(main.kiln, {}, "kiln", "_KILN_COMPLETE")
    found = asked.get_completions(["result", *words[:-1]], words[-1])
    return [item.value for item in found]
