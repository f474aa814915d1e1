"""An OCI image layout in a tar file (https://github.com/opencontainers/image-spec), from layers.

Layers are tar files, not compressed: an import is quicker, and the file stays on this machine.
Owners and times are fixed, so that the same files give the same digests.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_TIME_S = 1_700_000_000
_CREATED = "2023-11-14T22:13:20Z"
_BLOCK = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configuration of a container of the image. `environment` needs a PATH."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"


class Blob(NamedTuple):
    """Content with its digest, in a file or in memory."""

    digest: str
    size_bytes: int
    content: Path | bytes

    def descriptor(self, media: str) -> dict[str, Any]:
        kind = f"application/vnd.oci.image.{media}"
        return {"mediaType": kind, "digest": f"sha256:{self.digest}", "size": self.size_bytes}


def pack(directory: Path, out: Path) -> Path:
    """Write a layer with everything in `directory`, owned by root, to `out`."""
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            info = tar.gettarinfo(path, arcname=str(path.relative_to(directory)))
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = _TIME_S
            if info.type == tarfile.LNKTYPE:  # two names of one file: a copy each
                info.type, info.size = tarfile.REGTYPE, path.stat().st_size
            if info.isreg():
                with path.open("rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)
    return out


def write(out: Path, *, name: str, layers: Sequence[Path], settings: Settings) -> str:
    """Write the image `name` to `out`; return its digest. `ctr -n k8s.io images import` reads
    it.
    """
    blobs = [_file(layer) for layer in layers]
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": _CREATED,
            "config": {
                "Env": [f"{key}={value}" for key, value in settings.environment.items()],
                "Entrypoint": list(settings.entrypoint),
                "Cmd": list(settings.command),
                "WorkingDir": settings.workdir,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{b.digest}" for b in blobs]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("config.v1+json"),
            "layers": [blob.descriptor("layer.v1.tar") for blob in blobs],
        }
    )
    top = manifest.descriptor("manifest.v1+json")
    top["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", _encode({"schemaVersion": 2, "manifests": [top]}))
        for blob in {blob.digest: blob for blob in (manifest, config, *blobs)}.values():
            _add(tar, f"blobs/sha256/{blob.digest}", blob.content)
    return f"sha256:{manifest.digest}"


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    info = tarfile.TarInfo(name)
    info.mtime = _TIME_S
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
        return
    info.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(info, file)


def _file(path: Path) -> Blob:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return Blob(digest.hexdigest(), path.stat().st_size, path)


def _json(document: object) -> Blob:
    content = _encode(document)
    return Blob(hashlib.sha256(content).hexdigest(), len(content), content)


def _encode(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
