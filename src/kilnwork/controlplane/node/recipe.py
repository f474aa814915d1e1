"""From a Pod to what must be done to start its container: program, environment, files, links.

Pure: the objects that the Pod names are looked up by the caller (`wanted`) and handed in. Used by
`local` before each start; `volumes` carries the files out. What users name (keys, paths, volumes)
is data: a path that would leave its folder makes the Pod fail, it is never followed.
"""

import base64
import binascii
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane.node import errors, expansion, pods

ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a service account's files; below the container's root here."""

SANDBOX = "CONTAINER_SANDBOX_MOUNT_POINT"
"""Names the folder under which all mounts are found, as on Windows HostProcess containers."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_UID = re.compile(r"[a-z0-9-]{1,64}")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_FILE_MODE = 0o644

Kind = Literal["Secret", "ConfigMap"]


class Want(NamedTuple):
    """An object that a container needs before it can start."""

    kind: Kind
    name: str
    optional: bool


Found = Mapping[tuple[Kind, str], meta.JsonObject | None]
"""What the API server had under each wanted (kind, name); None: there is no such object."""


class Facts(NamedTuple):
    """What is the same for all containers of this node.

    `env` is the base of every environment (PATH, HOME), `service_env` what Pods with a service
    account get besides. `workdir` is where containers run that name no folder.
    """

    node: str
    address: str
    workdir: str
    env: Mapping[str, str]
    service_env: Mapping[str, str]


class File(NamedTuple):
    """One file of a volume; `path` is relative to the volume's folder and stays inside."""

    path: str
    content: bytes
    mode: int


class Volume(NamedTuple):
    """One volume; `files` is None for an empty folder that keeps what is in it."""

    name: str
    files: tuple[File, ...] | None


class Link(NamedTuple):
    """A mount: what is found at `path` (relative to the container's root).

    `sub` is relative to the volume. An empty `volume` means the service account's files.
    """

    path: str
    volume: str
    sub: str


class Recipe(NamedTuple):
    """Everything to start one container."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    volumes: tuple[Volume, ...]
    links: tuple[Link, ...]


def refusal(pod: pods.Pod) -> str:
    """Why this node cannot run the Pod whatever happens; empty if it can."""
    spec = pod.spec
    if len(spec.containers) != 1 or spec.init_containers:
        more = " and init containers" if spec.init_containers else ""
        count = len(spec.containers)
        return f"the local node runs Pods with exactly one container; this one has {count}{more}"
    if not (_UID.fullmatch(pod.metadata.uid) and _LABEL.fullmatch(pod.container.name)):
        return f'"{pod.container.name}" is not a valid container name'
    try:
        for volume in spec.volumes or ():
            _source(volume)
        tuple(_links(pod))
    except errors.Unsupported as error:
        return str(error)
    return ""


def wanted(pod: pods.Pod) -> list[Want]:
    """The Secrets and ConfigMaps that the container's environment and volumes name."""
    found: list[Want] = []
    for source in pod.container.env_from or ():
        if source.secret_ref is not None:
            found.append(Want("Secret", source.secret_ref.name, source.secret_ref.optional))
        if source.config_map_ref is not None:
            reference = source.config_map_ref
            found.append(Want("ConfigMap", reference.name, reference.optional))
    keys = (_key_reference(variable) for variable in pod.container.env or ())
    found += [Want(key[0], key[1].name, key[1].optional) for key in keys if key is not None]
    for volume in pod.spec.volumes or ():
        kind, source_ = _source(volume)
        if kind is not None:
            found.append(Want(kind, source_.secret_name or source_.name, source_.optional))
    return found


def make(pod: pods.Pod, found: Found, *, facts: Facts, root: Path) -> Recipe:
    """The recipe of the Pod's container, whose mounts are under `root`.

    Raises `NotYet` for what is missing and may come, `Unsupported` for what never can work.
    """
    volumes = tuple(_volume(v, found, pod) for v in pod.spec.volumes or ())
    env = _environment(pod, found, facts)
    env[SANDBOX] = str(root)
    command = [*(pod.container.command or ()), *(pod.container.args or ())]
    if not pod.container.command:
        raise errors.NotYet(
            "no command specified: images are labels on the local node, so the container must "
            "name its program in command",
            reason="CreateContainerError",
        )
    return Recipe(
        argv=[expansion.expand(word, env) for word in command],
        env=env,
        cwd=pod.container.working_dir or facts.workdir,
        volumes=volumes,
        links=tuple(_links(pod)),
    )


# Environment


def _environment(pod: pods.Pod, found: Found, facts: Facts) -> dict[str, str]:
    env = {**facts.env, "HOSTNAME": pod.metadata.name}
    if pod.uses_account:
        env.update(facts.service_env)
    for source in pod.container.env_from or ():
        env.update(_whole_object(source, found, pod))
    for variable in pod.container.env or ():
        value = _value(variable, found, pod=pod, facts=facts, env=env)
        if value is not None and _usable(variable.name):
            env[variable.name] = value
    return env


def _usable(name: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name


def _whole_object(source: pods.EnvFrom, found: Found, pod: pods.Pod) -> dict[str, str]:
    kind: Kind = "Secret" if source.secret_ref is not None else "ConfigMap"
    reference = source.secret_ref or source.config_map_ref
    if reference is None:
        return {}
    data = _data(kind, reference.name, found, optional=reference.optional)
    values = {source.prefix + key: _text(value) for key, value in (data or {}).items()}
    return {name: value for name, value in values.items() if _usable(name)}


def _key_reference(variable: pods.EnvVar) -> tuple[Kind, pods.KeyReference] | None:
    source = variable.value_from
    if source is None:
        return None
    if source.secret_key_ref is not None:
        return "Secret", source.secret_key_ref
    if source.config_map_key_ref is not None:
        return "ConfigMap", source.config_map_key_ref
    return None


def _value(
    variable: pods.EnvVar,
    found: Found,
    *,
    pod: pods.Pod,
    facts: Facts,
    env: Mapping[str, str],
) -> str | None:
    """The value of a variable; None for an optional one whose source is not there."""
    if variable.value_from is None:
        return expansion.expand(variable.value or "", env)
    if variable.value_from.field_ref is not None:
        return _field(variable.value_from.field_ref.field_path, pod, facts)
    named = _key_reference(variable)
    if named is None:
        raise errors.NotYet(f"the source of variable {variable.name} is not supported here")
    kind, reference = named
    data = _data(kind, reference.name, found, optional=reference.optional)
    if data is not None and reference.key in data:
        return _text(data[reference.key])
    if reference.optional:
        return None
    where = f"{kind} {pod.metadata.namespace}/{reference.name}"
    raise errors.NotYet(f"couldn't find key {reference.key} in {where}")


def _field(path: str, pod: pods.Pod, facts: Facts) -> str:
    """The downward API's fields, as far as a process on this machine has them."""
    match = _SUBSCRIPT.fullmatch(path)
    if match:
        values = getattr(pod.metadata, match.group(1))
        return str(values.get(match.group(2), ""))
    simple = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": facts.node,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": facts.address,
        "status.hostIPs": facts.address,
        "status.podIP": facts.address,
        "status.podIPs": facts.address,
    }
    if path not in simple:
        raise errors.NotYet(f"unsupported fieldPath: {path}")
    return simple[path]


def _text(value: bytes) -> str:
    """Bytes as a value of the environment; what is not UTF-8 passes through unchanged."""
    return value.decode("utf-8", "surrogateescape")


# Objects


def _data(kind: Kind, name: str, found: Found, *, optional: bool) -> dict[str, bytes] | None:
    """All keys of an object; None for an optional one that is not there. Raises `NotYet`."""
    obj = found.get((kind, name))
    if obj is None:
        if optional:
            return None
        raise errors.NotYet(f'{kind.lower()} "{name}" not found')
    encoded = obj.get("data" if kind == "Secret" else "binaryData") or {}
    data = {key: _decoded(str(value)) for key, value in encoded.items()}
    if kind == "ConfigMap":
        data |= {k: str(v).encode("utf-8", "surrogatepass") for k, v in _plain(obj).items()}
    return data


def _plain(obj: meta.JsonObject) -> dict[str, Any]:
    return obj.get("data") or {}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


# Volumes


def _source(volume: dict[str, Any]) -> tuple[Kind | None, pods.ObjectVolume]:
    """What a volume is made of: Secret, ConfigMap, or None for an empty folder."""
    name = str(volume.get("name"))
    kinds = [key for key in volume if key != "name" and volume[key] is not None]
    if not _LABEL.fullmatch(name):
        raise errors.Unsupported(f'"{name}" is not a valid volume name')
    if kinds == ["emptyDir"] or not kinds:
        return None, pods.ObjectVolume()
    if kinds not in (["secret"], ["configMap"]):
        raise errors.Unsupported(
            f'volume "{name}" is of type {", ".join(kinds)}; the local node offers emptyDir, '
            "secret and configMap"
        )
    try:
        source = msgspec.convert(volume[kinds[0]], pods.ObjectVolume, strict=False)
    except msgspec.ValidationError as error:
        raise errors.Unsupported(f'volume "{name}": {error}') from error
    return "Secret" if kinds[0] == "secret" else "ConfigMap", source


def _volume(volume: dict[str, Any], found: Found, pod: pods.Pod) -> Volume:
    kind, source = _source(volume)
    name = str(volume["name"])
    if kind is None:
        return Volume(name, None)
    try:
        data = _data(kind, source.secret_name or source.name, found, optional=source.optional)
        return Volume(name, tuple(_files(data or {}, source, pod)))
    except errors.NotYet as error:
        text = f'MountVolume.SetUp failed for volume "{name}" : {error}'
        raise errors.NotYet(text) from error


def _files(data: Mapping[str, bytes], source: pods.ObjectVolume, pod: pods.Pod) -> Iterator[File]:
    default = _FILE_MODE if source.default_mode is None else source.default_mode & 0o777
    if source.items is None:
        for key, content in data.items():
            if not _KEY.fullmatch(key) or key == "." or key.startswith(".."):
                raise errors.Unsupported(f'key "{key}" cannot be the name of a file')
            yield File(key, content, default)
        return
    for item in source.items:
        if item.key in data:
            mode = default if item.mode is None else item.mode & 0o777
            yield File(inside(item.path), data[item.key], mode)
        elif not source.optional:
            raise errors.NotYet(f"references non-existent key: {item.key}")


def _links(pod: pods.Pod) -> Iterator[Link]:
    """All mounts, outer ones first."""
    known = {str(volume.get("name")) for volume in pod.spec.volumes or ()}
    mounts: dict[str, Link] = {}
    for mount in pod.container.volume_mounts or ():
        if mount.name not in known:
            raise errors.Unsupported(f'volumeMounts: there is no volume "{mount.name}"')
        if mount.sub_path_expr:
            raise errors.Unsupported("subPathExpr is not supported by the local node")
        path = inside(mount.mount_path.lstrip("/"))
        if path in mounts:
            raise errors.Unsupported(f'mountPath "{mount.mount_path}" is used twice')
        mounts[path] = Link(path, mount.name, inside(mount.sub_path) if mount.sub_path else "")
    account = ACCOUNT_PATH.lstrip("/")
    if pod.uses_account and account not in mounts:
        mounts[account] = Link(account, "", "")
    yield from (mounts[path] for path in sorted(mounts))


def inside(path: str) -> str:
    """`path` in its shortest form; `Unsupported` if it is empty, absolute or climbs with `..`."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise errors.Unsupported(f'path "{path}" leaves its folder')
    normal = posixpath.normpath(path) if path else "."
    if normal == ".":
        raise errors.Unsupported(f'path "{path}" names no file or folder')
    return normal
