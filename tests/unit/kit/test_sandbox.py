"""Mounts are at their paths, or below the directory that the node names."""

from pathlib import Path

import pytest

from kilnwork.kit import sandbox


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, "/var/run/x"),
        ({sandbox.VARIABLE: ""}, "/var/run/x"),
        ({sandbox.VARIABLE: "/pods/p"}, "/pods/p/var/run/x"),
    ],
)
def test_where_a_mount_is(environ: dict[str, str], there: str) -> None:
    assert sandbox.found(Path("/var/run/x"), environ) == Path(there)


def test_who_spells_the_name() -> None:
    """As other programs know it (Kubernetes documentation, HostProcess containers). The sidecar
    of the contract starts too often to import `pathlib` for it."""
    assert sandbox.VARIABLE == "CONTAINER_SANDBOX_MOUNT_POINT"
    source = Path(sandbox.__file__).parents[1]
    spelled = {path for path in source.rglob("*.py") if sandbox.VARIABLE in path.read_text()}
    assert spelled == {Path(sandbox.__file__), source / "worker" / "sidecar.py"}
