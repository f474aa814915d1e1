"""`python -m kilnwork.worker`: light to start, clear when it cannot."""

import json
import subprocess
import sys

HEAVY = {
    "aiohttp", "apsw", "click", "cryptography", "jsonpath", "jwt", "kilnwork.dispatch",
    "kilnwork.kube", "rich", "uvicorn", "uvloop", "yaml",
}  # fmt: skip


def test_it_loads_nothing_heavy() -> None:
    code = "import kilnwork.worker.serving, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not HEAVY & set(json.loads(done.stdout))


def test_zygote_and_agent_go_separate_ways() -> None:
    """Before the fork neither has what only one of them needs; the zygote never has threads."""
    code = (
        "import kilnwork.worker.__main__, json, sys; first = sorted(sys.modules);"
        "import kilnwork.worker.zygote, threading;"
        "print(json.dumps([first, sorted(sys.modules), threading.active_count()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    before, zygote, threads = json.loads(done.stdout)
    assert not {"asyncio", "pickle", "kilnwork.sdk.session"} & set(before)
    assert not (HEAVY | {"asyncio", "ssl"}) & set(zygote)
    assert threads == 1


def test_without_its_environment_it_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kilnwork.worker"], env={}, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"KILN_CHANNEL is not set" in done.stderr
