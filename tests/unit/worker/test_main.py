"""`python -m kilnwork.worker`: light to start, clear when it cannot."""

import json
import subprocess
import sys

HEAVY = {
    "aiohttp", "apsw", "click", "cryptography", "jsonpath", "jwt", "kilnwork.dispatch",
    "kilnwork.kube", "rich", "uvicorn", "uvloop", "yaml",
}  # fmt: skip


def test_it_loads_nothing_heavy() -> None:
    code = "import kilnwork.worker.__main__, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not HEAVY & set(json.loads(done.stdout))


def test_without_its_environment_it_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kilnwork.worker"], env={}, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"KILN_CHANNEL is not set" in done.stderr
