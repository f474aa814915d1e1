"""Settings of a worker, from the environment of its Pod: the channel, its identity, its slots.

Read at the start of the worker, and of each zygote that replaces another, from the variables that
the TaskCluster controller or `kiln.start()` sets. The channel token is in a file, so that it does
not show in the environment, process list or dump of a task.
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import errors, mount_path_resolution

DIRECTORY_PREFIX = "kiln-w-"
"""Prefix of the names of all directories that a worker makes in the temporary directory."""

OWN_VARIABLES = frozenset(
    {
        "KILN_CHANNEL",
        "KILN_CA_FILE",
        "KILN_RELAY",
        "KILN_TOKEN_FILE",
        "KILN_NAMESPACE",
        "KILN_CLUSTER",
        "KILN_WORKER",
        "KILN_POD_UID",
        "KILN_NODE",
        "KILN_SLOTS",
        "KILN_WORKDIR",
        "KILN_PYTHONPATH",
        "KILN_OWNER_FD",
        "KILN_MEMORY_LIMIT",
        "KILN_MEMORY_SHARE",
        "KILN_RUNTIME",
    }
)
"""Environment variables for the worker itself: tasks do not inherit them."""


DEFAULT_MEMORY_SHARE = 0.95
"""Default share of the memory limit at which the largest task is ended. The rest is what a task may
take between two samples and until it is gone; with a lower share more memory would never be used.
"""

VOLUME = Path("/var/run/kilnwork")
"""The mount path of a volume that the worker shares with the containers of its attempts."""

NETWORK = "tls://"
"""Prefix of KILN_CHANNEL where the dispatcher is on another machine."""

_MAX_DIRECTORY = 50
"""Maximum bytes of the path of the temporary directory; if it is longer, the relay's sockets get a
directory in /tmp, because paths of sockets must be short.
"""


@dataclass(frozen=True, slots=True)
class RemoteManager:
    """The connection data of a manager on another machine, which is reached over the worker's
    `relay`.

    `ca_file`: PEM certificates to verify the manager's certificate. `directory`: private to this
    worker, made by the agent; holds the relay's sockets and the slots' blob cache.
    """

    host: str
    port: int
    ca_file: Path
    directory: Path

    @property
    def channel(self) -> str:
        """Return the path of the relay's Unix socket for the channel to the dispatcher."""
        return str(self.directory / "channel")

    @property
    def http(self) -> str:
        """Return the path of the relay's Unix socket for HTTP to the manager."""
        return str(self.directory / "http")

    @property
    def blobs(self) -> Path:
        """Return the path of the blob cache, which has a directory for each namespace."""
        return self.directory / "blobs"

    @property
    def spool(self) -> Path:
        """Return the directory in which results of parts are kept until they are complete."""
        return self.directory / "spool"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker; see the module."""

    channel: str
    """Path of the dispatcher's Unix socket, or of the relay's."""
    token_file: Path
    namespace: str
    cluster: str
    worker: str
    pod_uid: str
    node: str
    slots: int
    mounts: Path
    """The directory below which this process finds the mounts of its Pod; see
    `kit.mount_path_resolution`.
    """
    workdir: Path | None = None
    """Working directory of slots; None for the worker's own."""
    pythonpath: tuple[str, ...] = ()
    """Directories that slots append to sys.path."""
    memory_limit: int | None = None
    """Bytes that the Pod states as its limit, used where no cgroup enforces it."""
    memory_share: float = DEFAULT_MEMORY_SHARE
    """Share of the limit at which the largest task is ended; 0 for never."""
    owner: int | None = None
    """A descriptor; when its other end is closed, the worker ends everything at once."""
    containers: bool = False
    """Whether commands run in ephemeral containers."""
    remote: RemoteManager | None = None
    """The manager on another machine; None if the dispatcher is on this one."""


def name_directory(environment: MutableMapping[str, str]) -> None:
    """Set the environment variable that names the relay's directory, if there is a relay.

    So agent, zygotes and slots agree on the directory.
    """
    if environment.get("KILN_CHANNEL", "").startswith(NETWORK):
        temporary = environment.get("TMPDIR") or "/tmp"  # noqa: S108  the directory will be private
        if _in_containers(environment) and mount_path_resolution.mount_root(environment) == Path(
            "/"
        ):
            temporary = str(VOLUME)
        if len(os.fsencode(temporary)) > _MAX_DIRECTORY:
            temporary = "/tmp"  # noqa: S108
        environment["KILN_RELAY"] = f"{temporary}/{DIRECTORY_PREFIX}{os.urandom(6).hex()}"


def from_environment(environment: Mapping[str, str]) -> WorkerSettings:
    """Read the settings from environment variables.

    Raises ConfigurationError, which names the variable and the expected value.
    """
    mounts = mount_path_resolution.mount_root(environment)
    remote, channel = _channel(environment, mounts)
    return WorkerSettings(
        channel=channel,
        remote=remote,
        token_file=mounted(Path(_needed(environment, "KILN_TOKEN_FILE")), mounts=mounts),
        namespace=_needed(environment, "KILN_NAMESPACE"),
        cluster=_needed(environment, "KILN_CLUSTER"),
        worker=_needed(environment, "KILN_WORKER"),
        pod_uid=_needed(environment, "KILN_POD_UID"),
        node=environment.get("KILN_NODE", ""),
        slots=_slots(environment.get("KILN_SLOTS", "1")),
        mounts=mounts,
        workdir=_workdir(environment.get("KILN_WORKDIR", "")),
        pythonpath=tuple(filter(None, environment.get("KILN_PYTHONPATH", "").split(os.pathsep))),
        memory_limit=_memory_limit(environment.get("KILN_MEMORY_LIMIT", "")),
        memory_share=_memory_share(environment.get("KILN_MEMORY_SHARE", "")),
        owner=_descriptor(environment.get("KILN_OWNER_FD", "")),
        containers=_in_containers(environment),
    )


def _in_containers(environment: Mapping[str, str]) -> bool:
    return environment.get("KILN_RUNTIME") == "EphemeralContainers"


def mounted(path: Path, *, mounts: Path) -> Path:
    """Return the path at which this process finds a file of a volume that is mounted at `path`."""
    return mounts / path.relative_to("/") if path.is_absolute() else path


def _channel(environment: Mapping[str, str], mounts: Path) -> tuple[RemoteManager | None, str]:
    channel = _needed(environment, "KILN_CHANNEL")
    if channel.startswith("unix:/"):
        return None, channel.removeprefix("unix:")
    host, _, port = channel.removeprefix(NETWORK).rpartition(":")
    if not channel.startswith(NETWORK) or not host or not (port.isascii() and port.isdigit()):
        raise errors.ConfigurationError(
            f"KILN_CHANNEL is {channel!r}; it must be unix:/PATH, the dispatcher's socket, or "
            "tls://HOST:PORT, where its manager listens"
        )
    remote = RemoteManager(
        host=host.strip("[]"),
        port=int(port),
        ca_file=mounted(Path(_needed(environment, "KILN_CA_FILE")), mounts=mounts),
        directory=Path(_needed(environment, "KILN_RELAY")),
    )
    return remote, remote.channel


def _needed(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "")
    if not value:
        raise errors.ConfigurationError(
            f"{variable} is not set: a worker is started by its TaskCluster's Pod, which sets it"
        )
    return value


def _workdir(text: str) -> Path | None:
    if not text:
        return None
    directory = Path(text)
    if not directory.is_dir():
        raise errors.ConfigurationError(
            f"KILN_WORKDIR is {text!r}, which is no directory here: make it, or name another"
        )
    return directory


def _descriptor(text: str) -> int | None:
    if not text:
        return None
    try:
        # Raises OSError unless the descriptor is open.
        os.set_inheritable(int(text), False)
    except (OSError, ValueError) as error:
        raise errors.ConfigurationError(
            f"KILN_OWNER_FD is {text!r}; it must be the number of an open descriptor"
        ) from error
    return int(text)


def _memory_limit(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise errors.ConfigurationError(
            f"KILN_MEMORY_LIMIT is {text!r}; it must be a number of bytes, as the Pod's "
            "resources.limits.memory gives it"
        )
    return int(text)


def _memory_share(text: str) -> float:
    if not text:
        return DEFAULT_MEMORY_SHARE
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if share != 0 and not 0.1 <= share <= 1:
        raise errors.ConfigurationError(
            f"KILN_MEMORY_SHARE is {text!r}; it must be 0.1 to 1, the share of the memory limit "
            "at which the largest task is ended, or 0 for never"
        )
    return share


def _slots(text: str) -> int:
    # `isdigit` alone is true for "²" too, which int() refuses.
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise errors.ConfigurationError(f"KILN_SLOTS is {text!r}; it must be 1 to 10000")
    return int(text)
