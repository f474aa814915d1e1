"""Functions for a driver on a machine that sees no socket and no directory of its server; sent by
value.

Used by the tests of `kiln.connect()` over the network, to a `kiln up` and into a cluster.
"""

from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.endpoints import resolve

LARGE = 2_000_000
"""Size in bytes, far above the limit of values inside a frame."""


def hide_server(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Make `directory` the driver's own data directory, without a server beside it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(directory))
    monkeypatch.setattr(resolve, "local_socket", lambda server, document: None)


@kiln.task
def double(number: int) -> int:
    return 2 * number


@kiln.task
def length(data: bytes) -> int:
    return len(data)


@kiln.task
def make(size: int) -> bytes:
    return b"x" * size
