"""Mounts are at their paths, or below the directory that the node names."""

from pathlib import Path

import pytest

from kilnwork.kit import container_mounts


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, "/var/run/x"),
        ({container_mounts.VARIABLE: ""}, "/var/run/x"),
        ({container_mounts.VARIABLE: "/pods/p"}, "/pods/p/var/run/x"),
    ],
)
def test_where_a_mount_is(environ: dict[str, str], there: str) -> None:
    assert container_mounts.locate(Path("/var/run/x"), environ) == Path(there)


def test_only_two_modules_contain_the_name_of_the_variable() -> None:
    """As other programs know it (Kubernetes documentation, HostProcess containers). The sidecar
    of the contract starts too often to import `pathlib` for it."""
    assert container_mounts.VARIABLE == "CONTAINER_SANDBOX_MOUNT_POINT"
    source = Path(container_mounts.__file__).parents[1]
    spelled = {
        path for path in source.rglob("*.py") if container_mounts.VARIABLE in path.read_text()
    }
    assert spelled == {Path(container_mounts.__file__), source / "worker" / "sidecar.py"}
