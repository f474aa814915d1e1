"""Imports of commands: their cost, and that they leave the environment unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support import certificates

PROGRAM = """
import json, os
from kilnwork.cli import lazy_import
before = dict(os.environ)
lazy_import.load("kilnwork.kube.transport", "Transport")
import aiohttp.connector, ssl
trusted = aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"]
own = ssl.create_default_context().cert_store_stats()["x509_ca"]
print(json.dumps([before == dict(os.environ), trusted, own]))
"""


def loaded(environment: dict[str, str]) -> tuple[bool, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    same, trusted, own = json.loads(done.stdout)
    return same, trusted, own


def test_import_reads_no_certificates() -> None:
    same, trusted, _ = loaded({**os.environ})
    assert same
    assert trusted == 0


def test_later_contexts_use_the_users_certificates(tmp_path: Path) -> None:
    trusting = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "SSL_CERT_DIR": str(tmp_path)}
    (tmp_path / "ca.pem").write_text(certificates.Authority().pem)
    same, trusted, own = loaded({**os.environ, **trusting})
    assert same
    assert (trusted, own) == (0, 1)
