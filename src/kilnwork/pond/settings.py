"""Settings of an agent, read from the environment variables that `controllers.data_pond` sets in
its Pod.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kilnwork.kit import errors, mount_path_resolution


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent; see `from_environment`."""

    manager: str
    """URL of the manager."""
    namespace: str
    pond: str
    node: str
    token_file: Path
    """File with the token that authenticates the agents of this pond."""
    root: Path
    """Directory of the pond."""
    ca_file: Path | None = None
    """CA of the manager; None: plain http on this machine."""
    certificates: Path | None = None
    """Directory with `tls.crt` and `tls.key` of the pond, with which its agents authenticate each
    other. Without this directory or `host`, the agent serves no peers.
    """
    host: str = ""
    """Address at which peers connect."""
    secrets: Path | None = None
    """Directory with the credentials of sources, in a subdirectory named like the source. None:
    sources have no credentials.
    """
    absence_s: float | None = None
    """Seconds for which the manager may be unreachable before the agent ends; None: no limit. There
    is no limit where a kubelet would only start the agent again. A local node needs a limit: if its
    server was killed, nothing else ends the agents.
    """


_NEEDED = (
    "KILN_MANAGER",
    "KILN_NAMESPACE",
    "KILN_POND",
    "KILN_NODE",
    "KILN_TOKEN_FILE",
    "KILN_POND_PATH",
)


def from_environment(environment: Mapping[str, str]) -> AgentSettings:
    """Return the settings in environment variables.

    Raises ConfigurationError for missing variables.
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise errors.ConfigurationError(
            f"{', '.join(missing)} must be set: agents are started by the Pods of a DataPond"
        )
    return AgentSettings(
        manager=environment["KILN_MANAGER"].rstrip("/"),
        namespace=environment["KILN_NAMESPACE"],
        pond=environment["KILN_POND"],
        node=environment["KILN_NODE"],
        token_file=mount_path_resolution.locate(Path(environment["KILN_TOKEN_FILE"]), environment),
        root=Path(environment["KILN_POND_PATH"]),  # a directory of the node itself, not a mount
        ca_file=_path(environment, "KILN_CA_FILE"),
        certificates=_path(environment, "KILN_POND_CERTIFICATES"),
        host=environment.get("KILN_POND_HOST", ""),
        secrets=_path(environment, "KILN_POND_SECRETS"),
        absence_s=_seconds(environment, "KILN_POND_ABSENCE_S"),
    )


def _seconds(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise errors.ConfigurationError(f"{name} is {text!r}: give seconds") from None


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    """Return the path in an environment variable.

    On a local node, mounts are below another directory.
    """
    text = environment.get(name)
    return mount_path_resolution.locate(Path(text), environment) if text else None
