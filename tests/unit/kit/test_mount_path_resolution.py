"""Mounts are at their paths, or below the directory that the node names."""

from pathlib import Path

import pytest

from kilnwork.kit import mount_path_resolution


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, "/var/run/x"),
        ({mount_path_resolution.VARIABLE: ""}, "/var/run/x"),
        ({mount_path_resolution.VARIABLE: "/pods/p"}, "/pods/p/var/run/x"),
    ],
)
def test_where_a_mount_is(environ: dict[str, str], there: str) -> None:
    assert mount_path_resolution.locate(Path("/var/run/x"), environ) == Path(there)


def test_only_two_modules_contain_the_name_of_the_variable() -> None:
    """As other programs know it (Kubernetes documentation, HostProcess containers). The sidecar
    of the contract starts too often to import `pathlib` for it."""
    assert mount_path_resolution.VARIABLE == "CONTAINER_SANDBOX_MOUNT_POINT"
    source = Path(mount_path_resolution.__file__).parents[1]
    spelled = {
        path for path in source.rglob("*.py") if mount_path_resolution.VARIABLE in path.read_text()
    }
    assert spelled == {Path(mount_path_resolution.__file__), source / "worker" / "sidecar.py"}
