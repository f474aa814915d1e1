"""Imports by name at the moment of use: the only dynamic imports of the command line.

Used by `main` for commands, by `session` and by `wait_notice`.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where OpenSSL looks for trusted certificates, SSL_CTX_set_default_verify_paths(3)."""


def load(module: str, attribute: str) -> Any:
    """Import a module and return one of its attributes.

    The garbage collector is paused: imports leave no garbage, and looking for it would take a tenth
    of a server's import time.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        with _without_certificates():
            return getattr(importlib.import_module(module), attribute)
    finally:
        if collected:
            gc.enable()


@contextlib.contextmanager
def _without_certificates() -> Iterator[None]:
    """Prevent aiohttp from making TLS contexts during import, which saves 50 ms and 1.7 MiB.

    `aiohttp.connector` makes them at import, and they are never used: all requests bring their own
    contexts.
    """
    if "aiohttp" in sys.modules:
        yield
        return
    before = {name: os.environ.get(name) for name in _TRUST}
    os.environ.update(dict.fromkeys(_TRUST, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
