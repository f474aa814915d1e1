"""Mistakes of users: a clear error with a remedy, an exit code, and no partial effect."""

import json
from collections.abc import Iterator

import pytest

from kilnwork.cli import exits
from support import up_server as up_support
from support import waiting


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    """Yield a server for all tests of the module: each test uses its own names."""
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        yield server


@pytest.mark.parametrize(
    ("spec", "path", "remedy"),
    [
        ({"comand": ["true"]}, "spec.comand", "unknown field"),
        ({"command": "true"}, "spec.command", "array"),
        ({"command": ["true"], "retry": {"maxAttempts": 0}}, "spec.retry.maxAttempts", "1"),
        ({"command": ["true"], "retry": {"on": ["outOfMemory"]}}, "spec.retry.on[0]", "timeout"),
        ({"command": ["true"], "outputType": "xml"}, "spec.outputType", "json"),
        ({"command": ["true"], "killTimestamp": "tomorrow"}, "spec.killTimestamp", "date-time"),
    ],
)
def test_invalid_field_is_reported_with_its_path(
    up: up_support.UpServer, spec: dict[str, object], path: str, remedy: str
) -> None:
    task = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "bad"},
        "spec": spec,
    }
    done = up.kiln("apply", "-f", "-", stdin=json.dumps(task), check=False)
    assert done.returncode == exits.Exit.FAILED
    assert path in done.stderr
    assert remedy in done.stderr
    assert up.kiln("get", "task", "bad", check=False).returncode == exits.Exit.NOT_FOUND


def test_name_too_long_for_labels_and_hosts_still_runs(up: up_support.UpServer) -> None:
    name = ".".join(["a" * 60] * 4)
    done = up.kiln("run", "--name", name, "--watch", "--", "sh", "-c", 'echo "$TASK_NAME"')
    assert name in done.stdout


def test_result_that_is_not_json_fails_the_task(up: up_support.UpServer) -> None:
    done = up.kiln(
        "run", "--name", "r", "--watch", "--", "sh", "-c", 'echo no > "$KILN_OUTPUT"', check=False
    )
    assert done.returncode == exits.Exit.TASK_FAILED
    status = up.get("tasks", "r")["status"]
    assert (status["state"], status["reason"]) == ("Failed", "InvalidResult")


def test_exit_code_of_the_command_is_returned(up: up_support.UpServer) -> None:
    done = up.kiln("run", "--name", "e", "--watch", "--", "sh", "-c", "exit 3", check=False)
    assert done.returncode == 3
    status = up.get("tasks", "e")["status"]
    assert (status["state"], status["reason"], status["exitCode"]) == ("Failed", "NonZeroExit", 3)


def test_missing_command_error_names_the_search_path(
    up: up_support.UpServer,
) -> None:
    done = up.kiln("run", "--name", "n", "--watch", "--", "no-such-program", check=False)
    assert done.returncode != 0
    status = up.get("tasks", "n")["status"]
    assert (status["state"], status["reason"]) == ("Failed", "CommandNotFound")
    assert "no-such-program" in status["message"]
    assert "PATH" in status["message"]


def test_server_starts_despite_a_stale_lock(up: up_support.UpServer) -> None:
    up.kill()
    up.start()
    assert up.kiln("run", "--watch", "--", "true").returncode == 0


def test_cancel_ends_a_command_that_ignores_sigterm(up: up_support.UpServer) -> None:
    script = "trap '' TERM; (setsid sleep 987 &) ; sleep 986"
    up.kiln(
        "apply",
        "-f",
        "-",
        stdin=json.dumps(
            {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "Task",
                "metadata": {"name": "stubborn"},
                "spec": {"command": ["sh", "-c", script], "timeouts": {"killGraceSeconds": 0.5}},
            }
        ),
    )
    waiting.wait_until(
        lambda: sum("sleep 98" in c for c in up.leftovers().values()) >= 2, what="it runs"
    )
    up.kiln("cancel", "stubborn")
    up.kiln("wait", "task/stubborn", "--for", "state=Killed", "--timeout", "20s")
    assert not [c for c in up.leftovers().values() if "sleep 98" in c]
    conditions = {c["type"]: c for c in up.get("tasks", "stubborn")["status"]["conditions"]}
    assert conditions["Stopped"]["status"] == "True"
