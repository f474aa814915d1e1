"""The server behaves as /jobs/openapi.json says, checked by schemathesis.

`make test-openapi` installs schemathesis (dependency group `openapi`) in an environment of its own
and names it in KILN_SCHEMATHESIS; without it the test is skipped.
"""

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import up_server

PROGRAM = os.environ.get("KILN_SCHEMATHESIS", "")
EXAMPLES = os.environ.get("KILN_SCHEMATHESIS_EXAMPLES", "20")
SECONDS = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("openapi")) as made:
        yield made


@pytest.mark.schemathesis
@pytest.mark.timeout(SECONDS * 5)
@pytest.mark.skipif(not PROGRAM, reason="KILN_SCHEMATHESIS names no program: make test-openapi")
def test_server_matches_the_openapi_document(server: up_server.UpServer, tmp_path: Path) -> None:
    seed = os.environ.get("KILN_SEED") or str(secrets.randbelow(1 << 32))
    print(f"KILN_SEED={seed}")
    token = (server.data / "token").read_text().strip()
    tried = subprocess.run(
        [
            *(PROGRAM, "run", f"{server.http}/jobs/openapi.json", "--no-color", "--seed", seed),
            *("-H", f"Authorization: Bearer {token}", "-n", EXAMPLES, "--warnings", "off"),
            *("--max-time", str(SECONDS), "--request-timeout", "70", "--continue-on-failure"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout[-20_000:]
    assert "request failed" not in server.log.read_text()
