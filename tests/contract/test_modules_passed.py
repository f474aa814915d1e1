"""The number of modules that a task passes: from `submit()` to its slot, from the POST to its row.

See `support.module_trace` for what counts. The figures of the dispatcher may only fall; those of
the whole path are printed (`pytest -s`).
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.api import kinds
from kilnwork.kube import client as kube_client
from kilnwork.kube import config as kube_config
from support import module_trace, short_paths, up_server, waiting

FROM_LINK_TO_SLOT = 12
"""From the link of a driver to that of a slot."""

FROM_HUB_TO_ROW = 9
"""From `Hub.submit`, which controllers call, to the transaction."""

DRIVER = """
import sys
from pathlib import Path
import kilnwork as kiln
from support import module_trace

@kiln.task
def work(text):
    return text

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    with kiln.start(directory / "home", slots=1) as session:
        for _ in range(5):
            work.submit("first").result()
        module_trace.switch(directory, on=True)
        work.submit(module_trace.MARK).result()
        module_trace.switch(directory, on=False)
"""


def _assert_at_most(modules: dict[str, list[str]], most: int) -> None:
    shown = "\n".join(f"{name}: {', '.join(functions)}" for name, functions in modules.items())
    ours = [name for name in modules if name.startswith("dispatch.")]
    print(f"{len(modules)} modules, {len(ours)} of them of the dispatcher:\n{shown}")
    assert 0 < len(ours) <= most, shown


@pytest.mark.timeout(120)
def test_number_of_modules_from_submit_to_the_slot(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env={**os.environ, **module_trace.prepare(tmp_path)}, check=True, timeout=100,
    )  # fmt: skip
    found = module_trace.passed(tmp_path)
    links = ("kilnwork.dispatch.hub.links", "Link.write")
    [dispatcher] = {one.pid for one in found if (one.module, one.function) == links}
    [sent] = [one.at for one in found if (one.module, one.function) == links]
    on_path = [one for one in found if one.pid != dispatcher or one.at <= sent]
    received = ("worker.slot_session", "SlotSession.received")
    _assert_at_most(module_trace.until(on_path, *received), FROM_LINK_TO_SLOT)


async def _create(server: up_server.UpServer, name: str) -> None:
    config = kube_config.load(server.data / "kubeconfig")
    async with kube_client.Client(config) as client:
        await client.create(
            kinds.TASKS,
            {
                "apiVersion": kinds.TASKS.api_version,
                "kind": "Task",
                "metadata": {"name": name},
                "spec": {"command": ["echo", name]},
            },
            "default",
        )


@pytest.mark.timeout(200)
def test_number_of_modules_from_the_post_of_a_task_to_its_row(tmp_path: Path) -> None:
    variables = module_trace.prepare(tmp_path)
    server = up_server.UpServer(
        short_paths.directory() / "data", workdir=tmp_path, variables=variables
    )
    server.start(timeout_s=90)
    try:
        asyncio.run(_create(server, "first"))
        waiting.wait_until(
            lambda: server.get("tasks", "first").get("status", {}).get("state") == "Success",
            what="the first task is over", timeout_s=60,
        )  # fmt: skip
        module_trace.switch(tmp_path, on=True)
        asyncio.run(_create(server, module_trace.MARK))
        written = ("dispatch.journal.sqlite.journal", "Journal._commit")
        waiting.wait_until(
            lambda: any(one.function == written[1] for one in module_trace.passed(tmp_path)),
            what="its row is written", timeout_s=60,
        )  # fmt: skip
        module_trace.switch(tmp_path, on=False)
    finally:
        server.stop()
    found = module_trace.passed(tmp_path)
    beside = "kilnwork.dispatch.hub.delivery"  # makes frames while the journal writes the row
    on_path = [one for one in found if one.module != beside]
    _assert_at_most(module_trace.until(on_path, *written), FROM_HUB_TO_ROW)
