"""Files in the volumes of a Pod, computed from their sources.

No I/O: the objects are passed in. Used by `container_plan` and `container_preparation`, and by
`termination_messages` for paths; `volumes` writes the files. Keys and paths from the Pod are not
trusted: a path that leads out of its directory is never followed, and the Pod fails.
"""

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane.node import container_input_types, downward_fields, errors, pod_types

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_FILE_MODE = 0o644
_TOKEN_S = 3600
"""Default lifetime of a projected token in seconds (ServiceAccountTokenProjection)."""


class VolumeFile(NamedTuple):
    """One file of a volume; `path` is relative to the volume's directory and stays inside."""

    path: str
    content: bytes
    mode: int


class VolumeContent(NamedTuple):
    """The files of one volume; None for a volume whose content the containers write."""

    name: str
    files: tuple[VolumeFile, ...] | None


class VolumeContext(NamedTuple):
    """Inputs of the files of a Pod's volumes."""

    pod: pod_types.Pod
    found: container_input_types.Found
    tokens: container_input_types.Tokens
    facts: container_input_types.NodeFacts


def check(pod: pod_types.Pod) -> None:
    """Raise `Unsupported` for a volume that this node does not support."""
    for volume in pod.spec.volumes or ():
        if not _LABEL.fullmatch(str(volume.get("name"))):
            raise errors.Unsupported(f'"{volume.get("name")}" is not a valid volume name')
        for kind, source in _parts(volume):
            if kind not in _WRITERS and kind not in ("emptyDir", "hostPath"):
                raise errors.Unsupported(
                    f'volume "{volume["name"]}" is of type {kind}; this node offers emptyDir, '
                    "hostPath, secret, configMap, downwardAPI and projected"
                )
            _read(volume, kind, source)


def wanted(pod: pod_types.Pod) -> Iterator[container_input_types.ObjectWant]:
    """Yield the Secrets and ConfigMaps that the volumes name."""
    for volume in pod.spec.volumes or ():
        for kind, raw in _parts(volume):
            source = _read(volume, kind, raw)
            if isinstance(source, pod_types.ObjectVolume):
                object_kind: container_input_types.Kind = (
                    "Secret" if kind == "secret" else "ConfigMap"
                )
                yield container_input_types.ObjectWant(
                    object_kind, source.secret_name or source.name, source.optional or False
                )


def tokens(pod: pod_types.Pod) -> Iterator[container_input_types.TokenWant]:
    """Yield the service-account tokens that the volumes need."""
    for volume in pod.spec.volumes or ():
        for kind, raw in _parts(volume):
            source = _read(volume, kind, raw)
            if isinstance(source, pod_types.TokenVolume):
                yield _token_want(source)


def volume(volume: dict[str, Any], context: VolumeContext) -> VolumeContent:
    """Return the content of a volume.

    Raises `InputsNotReady` naming the volume and what it waits for, and `Unsupported`.
    """
    name = str(volume["name"])
    if is_container_owned(volume):
        return VolumeContent(name, None)
    files: dict[str, VolumeFile] = {}
    try:
        for kind, raw in _parts(volume):
            source = _read(volume, kind, raw)
            mode = _default_mode(volume)
            for file in _WRITERS[kind](source, context, mode):
                # If two sources have the same path, the later one wins, as in a projected volume.
                files[file.path] = file
    except errors.InputsNotReady as error:
        text = f'MountVolume.SetUp failed for volume "{name}" : {error}'
        raise errors.InputsNotReady(text) from error
    return VolumeContent(name, tuple(files.values()))


def is_container_owned(volume: dict[str, Any]) -> bool:
    """Return whether the containers write the content of a volume: an emptyDir or hostPath.

    The node writes the files of all other volumes.
    """
    return [kind for kind, _ in _parts(volume)] in (["emptyDir"], ["hostPath"])


def host_path(volume: dict[str, Any]) -> pod_types.HostPath | None:
    """Return the hostPath of a volume, or None for another type of volume."""
    for kind, raw in _parts(volume):
        source = _read(volume, kind, raw)
        if isinstance(source, pod_types.HostPath):
            return source
    return None


# The sources of a volume


def _parts(volume: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (kind, source) for each source of a volume, also for each part of a projected one."""
    given = [key for key in volume if key != "name" and volume[key] is not None]
    if not given:
        # Default of the API server for a volume without a source.
        yield "emptyDir", {}
    for kind in given:
        if kind != "projected":
            yield kind, volume[kind]
            continue
        for projection in volume[kind].get("sources") or ():
            yield from ((k, s) for k, s in projection.items() if s is not None)


def _read(volume: dict[str, Any], kind: str, source: Any) -> msgspec.Struct | None:
    shape = _SHAPES.get(kind)
    if shape is None:
        return None
    try:
        return msgspec.convert(source, shape, strict=False)
    except msgspec.ValidationError as error:
        raise errors.Unsupported(f'volume "{volume.get("name")}": {error}') from error


def _default_mode(volume: dict[str, Any]) -> int:
    for kind in ("secret", "configMap", "downwardAPI", "projected"):
        mode = (volume.get(kind) or {}).get("defaultMode")
        if isinstance(mode, int):
            return mode & 0o777
    return _FILE_MODE


def _secret(source: Any, context: VolumeContext, mode: int) -> Iterator[VolumeFile]:
    return _object("Secret", source, context, mode=mode)


def _config_map(source: Any, context: VolumeContext, mode: int) -> Iterator[VolumeFile]:
    return _object("ConfigMap", source, context, mode=mode)


def _object(
    kind: container_input_types.Kind,
    source: pod_types.ObjectVolume,
    context: VolumeContext,
    *,
    mode: int,
) -> Iterator[VolumeFile]:
    name, optional = source.secret_name or source.name, bool(source.optional)
    data = read(kind, name, context.found, optional=optional) or {}
    if source.items is None:
        for key, content in data.items():
            if not _KEY.fullmatch(key) or key == "." or key.startswith(".."):
                raise errors.Unsupported(f'key "{key}" cannot be the name of a file')
            yield VolumeFile(key, content, mode)
        return
    for item in source.items:
        if item.key in data:
            own = mode if item.mode is None else item.mode & 0o777
            yield VolumeFile(normalize_inside(item.path), data[item.key], own)
        elif not optional:
            raise errors.InputsNotReady(f"references non-existent key: {item.key}")


def _downward(source: Any, context: VolumeContext, mode: int) -> Iterator[VolumeFile]:
    downward: pod_types.DownwardVolume = source
    for item in downward.items or ():
        own = mode if item.mode is None else item.mode & 0o777
        if item.field_ref is not None:
            text = downward_fields.file_content(
                item.field_ref.field_path, context.pod, context.facts
            )
        elif item.resource_field_ref is not None:
            text = _resource(item.resource_field_ref, context)
        else:
            continue
        yield VolumeFile(normalize_inside(item.path), text.encode("utf-8", "surrogatepass"), own)


def _resource(reference: pod_types.ResourceReference, context: VolumeContext) -> str:
    named = (c for c in context.pod.all_containers if c.name == reference.container_name)
    container = next(named, None)
    if container is None:
        raise errors.InputsNotReady(f"container {reference.container_name} not found")
    return downward_fields.resource(reference, container, context.facts)


def _token(source: Any, context: VolumeContext, mode: int) -> Iterator[VolumeFile]:
    want = _token_want(source)
    if want not in context.tokens:
        raise errors.InputsNotReady("the token of the service account was not issued yet")
    yield VolumeFile(normalize_inside(source.path), context.tokens[want].encode(), mode)


def _token_want(source: pod_types.TokenVolume) -> container_input_types.TokenWant:
    return container_input_types.TokenWant(source.audience, source.expiration_seconds or _TOKEN_S)


_SHAPES: dict[str, type[msgspec.Struct]] = {
    "secret": pod_types.ObjectVolume,
    "configMap": pod_types.ObjectVolume,
    "downwardAPI": pod_types.DownwardVolume,
    "serviceAccountToken": pod_types.TokenVolume,
    "hostPath": pod_types.HostPath,
}

_WRITERS: dict[str, Callable[[Any, VolumeContext, int], Iterator[VolumeFile]]] = {
    "secret": _secret,
    "configMap": _config_map,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
}


# Contents of Secrets and ConfigMaps


def read(
    kind: container_input_types.Kind,
    name: str,
    found: container_input_types.Found,
    *,
    optional: bool,
) -> dict[str, bytes] | None:
    """Return all keys of an object with their values, or None for a missing optional object.

    Raises `InputsNotReady` if a required object does not exist.
    """
    obj = found.get((kind, name))
    if obj is None:
        if optional:
            return None
        raise errors.InputsNotReady(f'{kind.lower()} "{name}" not found')
    encoded = obj.get("data" if kind == "Secret" else "binaryData") or {}
    data = {key: _decoded(str(value)) for key, value in encoded.items()}
    if kind == "ConfigMap":
        plain = _plain(obj).items()
        data |= {k: str(v).encode("utf-8", "surrogatepass") for k, v in plain}
    return data


def _plain(obj: meta.JsonObject) -> Mapping[str, Any]:
    return obj.get("data") or {}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def normalize_inside(path: str) -> str:
    """Return `path` normalized. Raises `Unsupported` if it is empty, absolute or contains `..`."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise errors.Unsupported(f'path "{path}" leaves its directory')
    normal = posixpath.normpath(path) if path else "."
    if normal == ".":
        raise errors.Unsupported(f'path "{path}" names no file or directory')
    return normal
