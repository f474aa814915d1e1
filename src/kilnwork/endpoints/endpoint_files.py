"""The file DIR/endpoints.json, which says which process serves a directory, and how to reach it.

`controlplane.cluster` writes the file into the data directory of `kiln up`, and `sdk.durable_home`
into that of `kiln.start(DIR)`; both read it at the next start, and `resolve` reads it to find them.
The file contains no secret: the token is in a separate file.
"""

from pathlib import Path

import msgspec

from kilnwork.kit import data_directories, processes

FILE = "endpoints.json"
TOKEN = "token"  # noqa: S105  the name of a file
SOCKET = "channel.sock"


class Process(msgspec.Struct, frozen=True):
    """The identity of a process, which differs from that of a later process with the same pid.

    See `kit.processes`.
    """

    pid: int
    started: int

    @property
    def identity(self) -> processes.ProcessId:
        """Return the identity of the process as a `kit.processes.ProcessId`."""
        return processes.ProcessId(self.pid, self.started)

    def alive(self) -> bool:
        """Return whether this process still runs."""
        return self.identity.alive()


class Channel(msgspec.Struct, frozen=True):
    """The addresses of the channel; None means that the channel has no such address."""

    unix: str | None = None


class Endpoints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the file; it has URLs for `kiln up`, and none for `kiln.start(DIR)`."""

    version: str
    pid: int
    """Pid of the server, or of the dispatcher."""
    epoch: int | None = None
    """Epoch of the dispatcher; None in the directory of a `kiln.start`."""
    kubernetes: str = ""
    """URL with TLS; serves everything."""
    http: str = ""
    """Plain HTTP URL; serves everything but Kubernetes."""
    channel: Channel = Channel()
    dispatcher: Process | None = None
    worker: Process | None = None
    home: str = ""
    """KILN_HOME_ID in the environment of all processes that a home has started."""

    @property
    def is_server(self) -> bool:
        """Return whether this is a data directory of `kiln up`."""
        return bool(self.kubernetes)


def read(directory: Path) -> Endpoints | None:
    """Return the content of the file in a directory, or None if there is no readable file.

    It describes the process that serves the directory, or that served it last.
    """
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Endpoints)
    except (OSError, msgspec.MsgspecError):
        return None


def write(directory: Path, found: Endpoints) -> None:
    """Replace the file in a directory; its mode is 0600."""
    document = msgspec.json.format(msgspec.json.encode(found), indent=2)
    data_directories.write_private(directory / FILE, document + b"\n")


def token(directory: Path) -> str:
    """Return the token of the process that serves a directory, or "" if it cannot be read."""
    try:
        return (directory / TOKEN).read_text().strip()
    except OSError:
        return ""


def socket(directory: Path) -> str:
    """Return the Unix socket of the process that serves a directory, or "" if it was never served.

    Successive processes use the same socket.
    """
    found = read(directory)
    return (found and found.channel.unix) or ""
