"""Volumes of a Pod on disk: folders, files of Secrets and ConfigMaps, and the links to them.

Carries out a `recipe.Recipe` below `DIR/pods/UID` (mode 0700):
`volumes/NAME` holds each volume, `account` the service account's files, `root` has a link for each
mount, `containers/NAME` the logs. Files are replaced at once, so that a reader sees old or new.
"""

import shutil
from pathlib import Path

from kilnwork.controlplane.node import errors, recipe
from kilnwork.kit import paths


class PodFolder:
    """Where one Pod keeps things on this node."""

    def __init__(self, base: Path, uid: str) -> None:
        self.path = base / uid
        self.root = self.path / "root"
        self.account = self.path / "account"
        self._volumes = self.path / "volumes"

    def container(self, name: str) -> Path:
        """Logs and output pipes of a container."""
        return self.path / "containers" / name

    def prepare(self, done: recipe.Recipe) -> None:
        """Make volumes and mounts as they should be; repeatable. Raises `NotYet` or OSError."""
        for folder in (self.path, self.root, self._volumes):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for volume in done.volumes:
            self._fill(volume)
        keeps = {volume.name for volume in done.volumes if volume.files is None}
        for link in done.links:
            self._link(link, make=link.volume in keeps)

    def write_account(self, *, token: str, ca: bytes, namespace: str) -> None:
        """The service account's files, under the names that clients look for."""
        self.account.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"ca.crt": ca, "namespace": namespace.encode(), "token": token.encode()}
        for name, data in content.items():
            paths.write_private(self.account / name, data)

    def remove(self) -> None:
        """Remove everything; what cannot be removed stays."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _fill(self, volume: recipe.Volume) -> None:
        folder = self._volumes / volume.name
        folder.mkdir(mode=0o777, exist_ok=True)
        if volume.files is None:
            return
        wanted = {file.path.split("/")[0] for file in volume.files}
        for entry in folder.iterdir():
            if entry.name not in wanted:
                _discard(entry)
        for file in volume.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            paths.write_private(path, file.content)
            path.chmod(file.mode)

    def _link(self, link: recipe.Link, *, make: bool) -> None:
        folder = self._volumes / link.volume if link.volume else self.account
        target = folder / link.sub if link.sub else folder
        if link.sub:
            if not target.resolve().is_relative_to(folder.resolve()):
                raise errors.NotYet(f'subPath "{link.sub}" leaves volume "{link.volume}"')
            if make:
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                raise errors.NotYet(f'subPath "{link.sub}" is not in volume "{link.volume}"')
        path = self.root / link.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            if path.readlink() == target:
                return
            path.unlink()
        path.symlink_to(target)


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
