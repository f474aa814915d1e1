"""Kubeconfig files: parses them, merges them as kubectl does, and selects one context.

Used by `config`, which makes a client's configuration from `Chosen`. Opens only the kubeconfig
files themselves. Fields that kilnwork does not use are ignored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kilnwork.kit import errors

_Entry = TypeVar("_Entry")

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""Name of the cluster's extension whose content is passed to exec plugins."""


class _Kebab(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """The base of structs with field names in kebab case, as in most of a kubeconfig."""


class Extension(msgspec.Struct, frozen=True):
    """A named extension of a kubeconfig entry, with a value of any type."""

    name: str
    extension: Any = None


class Cluster(_Kebab, frozen=True):
    """The address of an API server, and the settings for verifying its certificate."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Extension] | None = None

    def exec_config(self) -> Any:
        """Return the data about this server for login programs besides its address, or None."""
        named = (e.extension for e in self.extensions or () if e.name == EXEC_EXTENSION)
        return next(named, None)


class Variable(msgspec.Struct, frozen=True):
    """An environment variable of a login program."""

    name: str
    value: str = ""


class ExecConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A login program (ExecConfig)."""

    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthInfo(_Kebab, frozen=True):
    """The credentials of a user (AuthInfo)."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecConfig | None = None
    auth_provider: dict[str, Any] | None = None
    username: str = ""
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(_Kebab, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab, frozen=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(_Kebab, frozen=True):
    name: str
    user: AuthInfo = AuthInfo()


class _NamedContext(_Kebab, frozen=True):
    name: str
    context: _Context = _Context()


class _File(_Kebab, frozen=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The selected context of a kubeconfig, with its cluster and user.

    `where` names the files, for messages; relative paths in the entries refer to the directories.
    """

    where: str
    namespace: str
    cluster: Cluster
    cluster_directory: Path
    user: AuthInfo
    user_name: str
    user_directory: Path


class _Merged(msgspec.Struct):
    """The merged entries of several kubeconfig files, with the directories of their files.

    Of several entries with the same name, the entry of the first file is used.
    """

    names: str
    clusters: dict[str, tuple[Cluster, Path]] = msgspec.field(default_factory=dict)
    users: dict[str, tuple[AuthInfo, Path]] = msgspec.field(default_factory=dict)
    contexts: dict[str, _Context] = msgspec.field(default_factory=dict)
    current: str = ""

    def add(self, file: _File, directory: Path) -> None:
        for c in file.clusters or ():
            self.clusters.setdefault(c.name, (c.cluster, directory))
        for u in file.users or ():
            self.users.setdefault(u.name, (u.user, directory))
        for x in file.contexts or ():
            self.contexts.setdefault(x.name, x.context)
        # The first file that has a current context wins, as for entries.
        self.current = self.current or file.current_context


def read(files: Sequence[Path], *, context: str | None = None) -> Chosen:
    """Return the context with the given name, else the current context, from YAML or JSON files.

    Missing files are skipped if at least one exists. Raises ConfigurationError.
    """
    present = [f for f in files if there(f)]
    if not present:
        names = ", ".join(str(f) for f in files)
        raise errors.ConfigurationError(
            f"kubeconfig {names} does not exist: start a server with `kiln up`, "
            "or correct KUBECONFIG"
        )
    merged = _Merged(names=", ".join(str(f) for f in present))
    # Symbolic links are not resolved, as in kubectl.
    for path in present:
        merged.add(_read(path), path.absolute().parent)
    return _choose(merged, context)


def there(path: Path) -> bool:
    """Return whether the path is a file; True if permissions hide whether it is.

    Reading it then fails with the cause.
    """
    try:
        return path.is_file()
    except PermissionError:
        return True


def _read(path: Path) -> _File:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot read kubeconfig {path}: {error.strerror}. Point KUBECONFIG at one that you "
            "may read"
        ) from error
    # As for kubectl, an empty file is an empty kubeconfig.
    if not raw.strip():
        return _File()
    try:
        if raw.lstrip().startswith(b"{"):
            return msgspec.json.decode(raw, type=_File)
        return msgspec.yaml.decode(raw, type=_File)
    except msgspec.MsgspecError as error:
        raise errors.ConfigurationError(f"{path} is not a kubeconfig: {error}") from error


def _choose(merged: _Merged, wanted: str | None) -> Chosen:
    name = wanted or merged.current
    known = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise errors.ConfigurationError(
            f"kubeconfig {merged.names} has no current-context (contexts: {known}): choose one "
            "with `kubectl config use-context NAME`"
        )
    context = merged.contexts.get(name)
    if context is None:
        raise errors.ConfigurationError(
            f'kubeconfig {merged.names} has no context "{name}" (contexts: {known})'
        )
    where = f"kubeconfig {merged.names}"
    of = f'context "{name}" of {where}'
    cluster, cluster_directory = _named(merged.clusters, context.cluster, kind="cluster", of=of)
    user, user_directory = AuthInfo(), cluster_directory
    if context.user:
        user, user_directory = _named(merged.users, context.user, kind="user", of=of)
    return Chosen(
        where=where,
        namespace=context.namespace or "default",
        cluster=cluster,
        cluster_directory=cluster_directory,
        user=user,
        user_name=f'user "{context.user}" of {where}',
        user_directory=user_directory,
    )


def _named(entries: Mapping[str, _Entry], name: str, *, kind: str, of: str) -> _Entry:
    found = entries.get(name)
    if found is None:
        known = ", ".join(sorted(entries)) or "none"
        raise errors.ConfigurationError(
            f'{of} names {kind} "{name}", which is not there ({kind}s: {known})'
        )
    return found
