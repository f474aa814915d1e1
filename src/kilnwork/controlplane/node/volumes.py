"""Volumes of a Pod on disk: directories, files of Secrets and ConfigMaps, and the links to them.

Carries out a `container_plan.ContainerPlan` below `DIR/pods/UID` (mode 0700): `volumes/NAME` holds
each volume, `account` the service account's files, `containers/NAME` the logs of a container, and
`containers/NAME/root` a link for each of its mounts. Files are replaced atomically, so that a
reader sees the old or the new content. A container gets its `root` as a short link elsewhere, since
paths of Unix sockets in volumes have at most 107 bytes (unix(7)), wherever the node keeps its Pods.
"""

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kilnwork.controlplane.node import container_plan, errors, pod_types, volume_sources
from kilnwork.kit import data_directories

_LINK_LENGTH = 12
_MAX_RUN_DIR = 50
"""Maximum length of `run_dir` in bytes, which leaves 40 bytes for the path of a socket in a
container."""


class PodDirectory:
    """The directory of one Pod on this node. `links` is the directory of the short links."""

    def __init__(self, base: Path, uid: str, *, links: Path) -> None:
        self.path = base / uid
        self._links = links
        self.account = self.path / "account"
        self._volumes = self.path / "volumes"

    def container(self, name: str) -> Path:
        """Return the directory of a container's logs and output pipes."""
        return self.path / "containers" / name

    def root(self, name: str) -> Path:
        """Return the directory under which a container finds its mounts."""
        return self.container(name) / "root"

    def mount_point(self, name: str) -> Path:
        """Return the path of a short link to `root`, which the container gets instead of `root`."""
        digest = hashlib.sha256(os.fsencode(self.root(name))).hexdigest()
        return self._links / digest[:_LINK_LENGTH]

    def link(self, name: str, links: Iterable[container_plan.MountLink]) -> None:
        """Create or update the mounts of a container. Calls may be repeated.

        Raises `InputsNotReady` or OSError.
        """
        for directory in (self.path, self.root(name)):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        data_directories.make_private(self._links)
        _point(self.mount_point(name), self.root(name))
        for link in links:
            self._link(self.root(name) / link.path, link)

    def fill(self, volumes: Iterable[volume_sources.VolumeContent]) -> None:
        """Create or update the files of volumes. Calls may be repeated. Raises OSError."""
        for directory in (self.path, self._volumes):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for volume in volumes:
            self._fill(volume)

    def _directory_of(self, link: container_plan.MountLink) -> Path:
        if link.host:
            return Path(link.host)
        return self._volumes / link.volume if link.volume else self.account

    def write_account(self, *, token: str, ca: bytes, namespace: str) -> None:
        """Write the service account's files, under the names that clients expect."""
        self.account.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"ca.crt": ca, "namespace": namespace.encode(), "token": token.encode()}
        for name, data in content.items():
            data_directories.write_private(self.account / name, data)

    def remove(self) -> None:
        """Remove the directory of the Pod. Files that cannot be removed stay."""
        with contextlib.suppress(OSError):
            for container in (self.path / "containers").iterdir():
                self.mount_point(container.name).unlink(missing_ok=True)
            self._links.rmdir()  # only if empty: the start of a container creates it again
        shutil.rmtree(self.path, ignore_errors=True)

    def _fill(self, volume: volume_sources.VolumeContent) -> None:
        directory = self._volumes / volume.name
        directory.mkdir(mode=0o777, exist_ok=True)
        if volume.files is None:
            return
        wanted = {file.path.split("/")[0] for file in volume.files}
        for entry in directory.iterdir():
            if entry.name not in wanted:
                _discard(entry)
        for file in volume.files:
            path = directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            data_directories.write_private(path, file.content)
            path.chmod(file.mode)

    def _link(self, path: Path, link: container_plan.MountLink) -> None:
        directory = self._directory_of(link)
        target = directory / link.sub if link.sub else directory
        if link.sub:
            # The container may have put links into its volume (CVE-2017-1002101).
            if not target.resolve().is_relative_to(directory.resolve()):
                raise errors.InputsNotReady(f'subPath "{link.sub}" leaves volume "{link.volume}"')
            if link.makes:
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                raise errors.InputsNotReady(
                    f'subPath "{link.sub}" is not in volume "{link.volume}"'
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        _point(path, target)


def links_directory(run_dir: Path, pods_directory: Path) -> Path:
    """Return the directory for a node's short links.

    It is within `run_dir`, or within /tmp if the path of `run_dir` is too long.
    """
    if len(os.fsencode(run_dir)) <= _MAX_RUN_DIR:
        return run_dir / "m"
    digest = hashlib.sha256(os.fsencode(pods_directory.resolve())).hexdigest()[:16]
    return Path("/tmp") / f"kiln-m-{digest}"  # noqa: S108  0700, owner checked, name is no secret


def _point(link: Path, target: Path) -> None:
    if link.is_symlink():
        if link.readlink() == target:
            return
        link.unlink()
    link.symlink_to(target)


_HOST_CHECKS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def check_host(name: str, host: pod_types.HostPath) -> None:
    """Check that a host path has the requested type, as the kubelet does.

    Creates what is missing for DirectoryOrCreate and FileOrCreate. Raises `InputsNotReady` for
    another type, and OSError.
    """
    path, kind = Path(host.path), host.type or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    if kind not in _HOST_CHECKS:
        return
    is_kind, what = _HOST_CHECKS[kind]
    if not (path.exists() and is_kind(path.stat().st_mode)):
        text = f"hostPath type check failed: {path} is not {what}"
        raise errors.InputsNotReady(f'MountVolume.SetUp failed for volume "{name}" : {text}')


def _discard(path: Path) -> None:
    # rmtree refuses links, and their targets are not ours.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
