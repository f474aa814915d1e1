"""Plan for the start of a container, computed from its Pod: program, environment, mounts.

Does no I/O. Before each start, `container_preparation` fetches the Secrets and ConfigMaps that the
container needs (`wanted`) and passes them to `make`. `pod_decisions`, `pod_reports` and `statuses`
ask which Pods are refused and which fields have no effect. `volume_sources` computes the files of
volumes, and `volumes` writes them. Keys, paths and names from the Pod are not trusted: a path that
leads out of its directory is never followed, and the Pod fails.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.api import field_support
from kilnwork.api.field_support import Effect, Side
from kilnwork.controlplane.node import (
    container_input_types,
    downward_fields,
    errors,
    pod_field_effects,
    pod_types,
    privileges,
    volume_sources,
)
from kilnwork.kit import mount_path_resolution

ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Path at which Kubernetes mounts a service account's files; here it is below the container's
root."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_UID = re.compile(r"[a-z0-9-]{1,64}")


class MountLink(NamedTuple):
    """Link that stands for a mount: its path, relative to the container's root, and its target."""

    path: str
    volume: str
    """Name of the volume; empty for the service account's files."""
    sub: str = ""
    """Path inside the volume."""
    makes: bool = False
    """Whether to create `sub` if it does not exist."""
    host: str = ""
    """Directory or file of the machine for a hostPath volume; empty for any other."""


class ContainerPlan(NamedTuple):
    """Plan of the start of one container, with everything that the start needs."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    links: tuple[MountLink, ...]
    dropped_privileges: privileges.Privileges = privileges.Privileges()


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace every `$(NAME)` of `values`, as Kubernetes does in commands and environment values.

    `$$` is a literal `$`; references to unknown names stay as they are; values are not expanded
    again. Source of the rules: k8s.io/kubernetes third_party/forked/golang/expansion.
    """

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return values.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)


def refusal(pod: pod_types.Pod) -> str:
    """Return why this node can never run the Pod, or "" if it can."""
    if not _UID.fullmatch(pod.metadata.uid):
        return f'"{pod.metadata.uid}" is not a valid uid'
    refused = [finding for finding in ignored(pod) if finding.effect == Effect.REFUSED]
    if refused:
        return field_support.describe_finding(refused[0])
    try:
        volume_sources.check(pod)
        for container in pod.all_containers:
            if not _LABEL.fullmatch(container.name):
                return f'"{container.name}" is not a valid container name'
            tuple(_links(pod, container, {}, implicit=False))
    except errors.Unsupported as error:
        return str(error)
    return ""


def ignored(pod: pod_types.Pod) -> list[field_support.Finding]:
    """Return the fields of the Pod that this node refuses, or that have no effect on this node.

    Fields of ephemeral containers are excluded, since these do not affect the outcome of the Pod.
    """
    spec = msgspec.structs.replace(pod.spec, ephemeral_containers=None)
    return list(_ignored(msgspec.json.encode(spec)))


@functools.lru_cache(maxsize=256)
def _ignored(spec: bytes) -> tuple[field_support.Finding, ...]:
    """Return the findings of `ignored` for an encoded spec.

    Cached, since several callers ask in every pass over a Pod, and its spec hardly ever changes.
    """
    return tuple(pod_field_effects.findings(msgspec.json.decode(spec), Side.CLUSTER))


def ignored_of(
    pod: pod_types.Pod, container: pod_types.EphemeralContainer
) -> list[field_support.Finding]:
    """Return the fields of an ephemeral container that are refused or have no effect."""
    volumes, position = pod.spec.volumes, pod.ephemeral_containers.index(container)
    fields = msgspec.to_builtins(container)
    return list(pod_field_effects.ephemeral_findings(fields, position, volumes, Side.CLUSTER))


def check_ephemeral(pod: pod_types.Pod, container: pod_types.EphemeralContainer) -> None:
    """Raise `Unsupported` for an ephemeral container that this node can never run."""
    for finding in ignored_of(pod, container):
        if finding.effect == Effect.REFUSED:
            raise errors.Unsupported(field_support.describe_finding(finding))


def wanted(container: pod_types.Container) -> list[container_input_types.ObjectWant]:
    """Return the Secrets and ConfigMaps that the container's environment names."""
    wants: list[container_input_types.ObjectWant] = []
    for source in container.env_from or ():
        if source.secret_ref is not None:
            name, optional = source.secret_ref.name, bool(source.secret_ref.optional)
            wants.append(container_input_types.ObjectWant("Secret", name, optional))
        if source.config_map_ref is not None:
            name, optional = source.config_map_ref.name, bool(source.config_map_ref.optional)
            wants.append(container_input_types.ObjectWant("ConfigMap", name, optional))
    keys = (_key_reference(variable) for variable in container.env or ())
    wants += [
        container_input_types.ObjectWant(k[0], k[1].name, bool(k[1].optional))
        for k in keys
        if k is not None
    ]
    return wants


def make(
    pod: pod_types.Pod,
    container: pod_types.Container,
    *,
    found: container_input_types.Found,
    facts: container_input_types.NodeFacts,
    root: Path,
) -> ContainerPlan:
    """Return the plan of a container whose mounts are under `root`.

    Raises `InputsNotReady` if something is missing that may appear later, and `Unsupported` if the
    container can never work here.
    """
    env = _environment(pod, container, found, facts=facts, root=root)
    command = [*(container.command or ()), *(container.args or ())]
    # `args` without `command` are a program, unless they start with an option: options are meant
    # for the entrypoint of an image, and there are no images here.
    if not command or (not container.command and command[0].startswith("-")):
        raise errors.InputsNotReady(
            "no command specified: images are labels on this node, so the container must "
            "name its program in command or args",
            reason="CreateContainerError",
        )
    dropped_privileges = _privileges(pod, container, facts)
    # As in Kubernetes, an ephemeral container has only the mounts that it names.
    implicit = facts.mounts_accounts and not isinstance(container, pod_types.EphemeralContainer)
    return ContainerPlan(
        argv=[expand(word, env) for word in command],
        env=env,
        cwd=container.working_dir or facts.workdir,
        links=tuple(_links(pod, container, env, implicit=implicit)),
        dropped_privileges=dropped_privileges,
    )


def _privileges(
    pod: pod_types.Pod, container: pod_types.Container, facts: container_input_types.NodeFacts
) -> privileges.Privileges:
    of_pod, own = pod.spec.security_context or {}, container.security_context or {}
    at = pod.path(container)
    try:
        return privileges.privileges_of(of_pod, own, uid=facts.uid, gid=facts.gid, at=at)
    except privileges.PrivilegeRefused as error:
        raise errors.InputsNotReady(str(error)) from error


def uses_account(pod: pod_types.Pod, *, mounts_accounts: bool) -> bool:
    """Return whether the node itself must provide the files of the Pod's service account."""
    return mounts_accounts and pod.uses_account and not pod.mounts(ACCOUNT_PATH)


# Environment


class _Context(NamedTuple):
    """Inputs of the environment variables of one container."""

    pod: pod_types.Pod
    container: pod_types.Container
    found: container_input_types.Found
    facts: container_input_types.NodeFacts


def _environment(
    pod: pod_types.Pod,
    container: pod_types.Container,
    found: container_input_types.Found,
    *,
    facts: container_input_types.NodeFacts,
    root: Path,
) -> dict[str, str]:
    """Return the environment variables of the container.

    Values in `env` may refer to the variable with the path of the mounts
    (`mount_path_resolution.VARIABLE`), which only the node sets.
    """
    env = {**facts.env, "HOSTNAME": pod.metadata.name, mount_path_resolution.VARIABLE: str(root)}
    if pod.uses_account:
        env.update(facts.service_env)
    for source in container.env_from or ():
        env.update(_whole_object(source, found))
    context = _Context(pod, container, found, facts)
    # `env` comes after `envFrom`, since it takes precedence.
    for variable in container.env or ():
        value = _value(variable, context, env)
        if value is not None and _usable(variable.name):
            env[variable.name] = value
    return env


def _usable(name: str) -> bool:
    return (
        bool(name)
        and "=" not in name
        and "\0" not in name
        and name != mount_path_resolution.VARIABLE
    )


def _whole_object(source: pod_types.EnvFrom, found: container_input_types.Found) -> dict[str, str]:
    kind: container_input_types.Kind = "Secret" if source.secret_ref is not None else "ConfigMap"
    reference = source.secret_ref or source.config_map_ref
    if reference is None:
        return {}
    data = volume_sources.read(kind, reference.name, found, optional=bool(reference.optional))
    values = {source.prefix + key: _text(value) for key, value in (data or {}).items()}
    return {name: value for name, value in values.items() if _usable(name)}


def _key_reference(
    variable: pod_types.EnvVar,
) -> tuple[container_input_types.Kind, pod_types.KeyReference] | None:
    source = variable.value_from
    if source is None:
        return None
    if source.secret_key_ref is not None:
        return "Secret", source.secret_key_ref
    if source.config_map_key_ref is not None:
        return "ConfigMap", source.config_map_key_ref
    return None


def _value(variable: pod_types.EnvVar, context: _Context, env: Mapping[str, str]) -> str | None:
    """Return the value of a variable, or None for an optional one whose source does not exist."""
    source = variable.value_from
    if source is None:
        # A value can refer only to variables that are defined before it.
        return expand(variable.value or "", env)
    if source.field_ref is not None:
        return downward_fields.field(source.field_ref.field_path, context.pod, context.facts)
    if source.resource_field_ref is not None:
        return downward_fields.resource(source.resource_field_ref, context.container, context.facts)
    named = _key_reference(variable)
    if named is None:
        raise errors.InputsNotReady(f"the source of variable {variable.name} is not supported here")
    kind, reference = named
    data = volume_sources.read(
        kind, reference.name, context.found, optional=bool(reference.optional)
    )
    if data is not None and reference.key in data:
        return _text(data[reference.key])
    if reference.optional:
        return None
    where = f"{kind} {context.pod.metadata.namespace}/{reference.name}"
    raise errors.InputsNotReady(f"couldn't find key {reference.key} in {where}")


def _text(value: bytes) -> str:
    """Decode a value of the environment. Bytes that are not UTF-8 pass through unchanged."""
    return value.decode("utf-8", "surrogateescape")


# Mounts


def _links(
    pod: pod_types.Pod, container: pod_types.Container, env: Mapping[str, str], *, implicit: bool
) -> Iterator[MountLink]:
    """Yield all mounts, outer ones first.

    `implicit`: see `container_input_types.NodeFacts.mounts_accounts`.
    """
    volumes_by_name = {str(volume.get("name")): volume for volume in pod.spec.volumes or ()}
    mounts: dict[str, MountLink] = {}
    for mount in container.volume_mounts or ():
        if mount.name not in volumes_by_name:
            raise errors.Unsupported(f'volumeMounts: there is no volume "{mount.name}"')
        sub = mount.sub_path or expand(mount.sub_path_expr, env)
        path = volume_sources.normalize_inside(mount.mount_path.lstrip("/"))
        if path in mounts:
            raise errors.Unsupported(f'mountPath "{mount.mount_path}" is used twice')
        host = volume_sources.host_path(volumes_by_name[mount.name])
        mounts[path] = MountLink(
            path,
            mount.name,
            volume_sources.normalize_inside(sub) if sub else "",
            makes=volume_sources.is_container_owned(volumes_by_name[mount.name]),
            host=host.path if host is not None else "",
        )
    account = ACCOUNT_PATH.lstrip("/")
    # This is the mount that the ServiceAccount admission plugin would have added.
    if account not in mounts and uses_account(pod, mounts_accounts=implicit):
        mounts[account] = MountLink(account, "")
    yield from (mounts[path] for path in sorted(mounts))
