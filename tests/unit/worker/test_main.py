"""`python -m kilnwork.worker`: light to start, clear when it cannot."""

import json
import subprocess
import sys

HEAVY = {
    "aiohttp", "apsw", "click", "cryptography", "jsonpath", "jwt", "kilnwork.dispatch",
    "kilnwork.kube", "rich", "uvicorn", "uvloop", "yaml",
}  # fmt: skip


def test_main_imports_no_heavy_module() -> None:
    code = "import kilnwork.worker.agent_process, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not HEAVY & set(json.loads(done.stdout))


def loaded(code: str) -> tuple[set[str], set[str], int]:
    """Modules before the fork, those that `code` adds, and how many threads there are then."""
    code = (
        "import json, sys, threading, kilnwork.worker.__main__ as main; main.share();"
        f"first = sorted(sys.modules); {code};"
        "print(json.dumps([first, sorted(sys.modules), threading.active_count()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    before, after, threads = json.loads(done.stdout)
    return set(before), set(after) - set(before), threads


def test_zygote_and_agent_import_nothing_of_each_other() -> None:
    """Before the fork neither has what only one of them needs; the zygote never has threads."""
    before, zygote, threads = loaded("import kilnwork.worker.zygote")
    assert not {"asyncio", "pickle", "kilnwork.sdk.session"} & before
    assert not (HEAVY | {"asyncio", "ssl"}) & (before | zygote)
    assert threads == 1


def test_shared_modules_are_imported_before_the_fork() -> None:
    """Each that imports it for itself has its memory for itself."""
    _, zygote, _ = loaded("import kilnwork.worker.zygote")
    _, agent, _ = loaded("sys.modules['ssl'] = None; import kilnwork.worker.agent_process")
    assert {"asyncio"} <= agent
    assert not {"httptools", "kilnwork.worker.task_socket"} & agent  # before the first command
    assert {"pickle"} <= zygote
    assert not agent & zygote


def test_agent_and_slots_do_not_load_openssl() -> None:
    """Each process that loads it has 0.6 MiB of it for itself."""
    _, agent, _ = loaded("sys.modules['ssl'] = None; import kilnwork.worker.agent_process")
    before, slot, _ = loaded("import kilnwork.worker.zygote, kilnwork.worker.slot_process")
    assert not {"_hashlib", "_ssl"} & (before | agent | slot)


def test_missing_environment_variable_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kilnwork.worker"], env={}, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"KILN_CHANNEL is not set" in done.stderr
