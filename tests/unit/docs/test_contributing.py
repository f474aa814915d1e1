"""CONTRIBUTING.md names only files, modules and make targets that exist."""

import re

import pytest

from support import pages

TEXT = (pages.ROOT / "CONTRIBUTING.md").read_text()
SOURCE = pages.ROOT / "src" / "kilnwork"
MADE = {"build/kube"}
"""What `make` puts there."""

NAMED = sorted(set(re.findall(r"`([a-z_]+(?:/[a-zA-Z_.]+)+)`", TEXT)) - MADE)
ROOTS = (
    pages.ROOT,
    SOURCE,
    SOURCE / "dispatch",
    SOURCE / "controlplane" / "apiserver",
)
"""Where a path may begin: the table of a task names those of `dispatch`."""


def _exists(path: str) -> bool:
    """Return whether this is a file, a directory, or `room/module.attribute`."""
    module, _, attribute = path.rpartition(".")
    for root in ROOTS:
        if (root / path).exists() or (root / f"{path}.py").is_file():
            return True
        if (root / f"{module}.py").is_file() and attribute in (root / f"{module}.py").read_text():
            return True
    return False


def test_paths_are_found_in_the_text() -> None:
    assert "dispatch/journal/task_rows.py" in NAMED
    assert len(NAMED) > 40


@pytest.mark.parametrize("path", NAMED)
def test_named_path_exists(path: str) -> None:
    assert _exists(path)


def test_missing_path_is_detected() -> None:
    assert not _exists("dispatch/machine/nothing.py")
    assert not _exists("dispatch/model.Nothing")


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"^\$ make ([a-z-]+)", TEXT, re.MULTILINE)))
)
def test_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (pages.ROOT / "Makefile").read_text(), re.MULTILINE)
