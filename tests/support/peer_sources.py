"""Sources of other projects that tests compare with; not part of this repository."""

import os
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def archive(name: str) -> Path:
    """Return the archive of a project; skip the test if there is none.

    Looks in $KILN_PEERS, then in ../shared/peers beside the checkout.
    """
    named = os.environ.get("KILN_PEERS")
    directories = [Path(named)] if named else [ROOT.parent / "shared" / "peers"]
    directories += [parent / "shared" / "peers" for parent in ROOT.parents]
    for directory in directories:
        if (found := directory / f"{name}.tar.xz").exists():
            return found
    pytest.skip(
        f"{name}.tar.xz is not there: KILN_PEERS names the directory; hack/peers says which"
    )


def read(name: str, path: str) -> str:
    """Return the text of one file of a project."""
    with tarfile.open(archive(name)) as files:
        member = files.extractfile(path)
        assert member is not None
        return member.read().decode()
