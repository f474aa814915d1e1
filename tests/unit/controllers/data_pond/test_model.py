"""Which files of a snapshot nodes need."""

import pytest

from kilnwork.controllers.data_pond import model


@pytest.mark.parametrize(
    ("nodes", "paths"),
    [
        (["n1"], ("b", "a")),
        (["n1", "n2"], ("a", "b", "c")),
        (["n3"], ()),
        ([], ()),
    ],
)
def test_paths_of_nodes_that_share_a_disk_are_joined(
    nodes: list[str], paths: tuple[str, ...]
) -> None:
    wanted = model.WantedSnapshot(
        name="m", digest="d", paths_by_node={"n1": ("b", "a"), "n2": ("c", "a")}
    )
    assert wanted.paths_on(nodes) == paths


@pytest.mark.parametrize("paths", [None, ("a",)])
def test_nodes_need_the_same_paths_without_paths_by_node(paths: tuple[str, ...] | None) -> None:
    wanted = model.WantedSnapshot(name="m", digest="d", paths=paths)
    assert wanted.paths_on(["n1", "n2"]) == paths
