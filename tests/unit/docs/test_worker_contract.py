"""docs/reference/worker-contract.md names every variable that a task's program gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import attempts, sync_set_env, task
from kilnwork.channel import messages
from kilnwork.controlplane.node import shim_container
from kilnwork.kit import ids, mount_path_resolution
from kilnwork.worker import agent, directories, environment
from support import pages

PAGE = (pages.DOCS / "reference" / "worker-contract.md").read_text()
REF = attempts.AttemptRef(ids.new_task_id(), 1, 1)


@pytest.fixture
def place() -> Iterator[directories.AttemptDirectory]:
    """Yield an attempt directory with input."""
    made = directories.Directories()
    found = made.make(REF, inputs=b"{}")
    yield found
    found.listener.close()
    made.close()


def test_every_variable_is_in_the_table(
    place: directories.AttemptDirectory, tmp_path: Path
) -> None:
    account = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text("t")
    pod = {environment.HOST: "127.0.0.1", environment.PORT: "7443", shim_container.MARKER: "c"}
    pod[sync_set_env.OUTPUTS] = str(tmp_path)
    run = messages.Run(REF, "team", "task-0", task.TaskSpec(), None)
    found = environment.Environment(pod, mounts=tmp_path, pod_uid="u").for_attempt(run, place)
    rows = pages.table(pages.sections(PAGE, 2)["Environment"])
    named = {name.strip("`") for row in rows for name in row.key.split(", ")}
    assert named == found.keys() - {"TMPDIR"}
    assert f"`{mount_path_resolution.VARIABLE}`" in PAGE


def test_times_are_those_of_the_code() -> None:
    assert f"(at most {agent.SHUTDOWN_GRACE_S:g} seconds when the worker" in " ".join(PAGE.split())
    assert f"at most {attempts.MAX_INLINE_BYTES // 1024} KiB" in PAGE
