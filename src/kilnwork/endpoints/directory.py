"""DIR/endpoints.json: who serves a folder, and where to reach it.

`kiln up` writes one into its data directory (`controlplane.cluster`), `kiln.start(DIR)` writes one
with more members into its own. Read by `sdk.durable` and `resolve`. It holds no secret: the token
is a file of its own.
"""

from pathlib import Path

import msgspec

from kilnwork.kit import paths, processes

FILE = "endpoints.json"
TOKEN = "token"  # noqa: S105  the name of a file
SOCKET = "channel.sock"


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for another that got its pid; see `kit.processes`."""

    pid: int
    started: int

    @property
    def identity(self) -> processes.ProcessId:
        """As `kit.processes` takes it."""
        return processes.ProcessId(self.pid, self.started)

    def alive(self) -> bool:
        """True while this very process runs."""
        return self.identity.alive()


class Channel(msgspec.Struct, frozen=True):
    """Where to connect; None: not offered."""

    unix: str | None = None


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file.

    `kubernetes`, `http`: URLs of a `kiln up`, empty for a home of `kiln.start`, which has instead
    `dispatcher`, `worker`, and `home`: what the environment of everything it has started holds as
    KILN_HOME_ID. `pid`: of the server, or the dispatcher.
    """

    version: str
    pid: int
    channel: Channel = Channel()
    kubernetes: str = ""
    http: str = ""
    dispatcher: Process | None = None
    worker: Process | None = None
    home: str = ""

    @property
    def is_server(self) -> bool:
        """True for a data directory of `kiln up`."""
        return bool(self.kubernetes)


def read(folder: Path) -> Endpoints | None:
    """Who last served a folder; None when nobody did or the file cannot be read."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Endpoints)
    except (OSError, msgspec.MsgspecError):
        return None


def write(folder: Path, found: Endpoints) -> None:
    """Replace the file; mode 0600."""
    document = msgspec.json.format(msgspec.json.encode(found), indent=2)
    paths.write_private(folder / FILE, document + b"\n")


def token(folder: Path) -> str:
    """The token of whoever serves the folder, "" when it cannot be read."""
    try:
        return (folder / TOKEN).read_text().strip()
    except OSError:
        return ""


def socket(folder: Path) -> str:
    """The Unix socket of whoever serves the folder: the same for all who do so one after the
    other; "" when nobody ever did."""
    found = read(folder)
    return (found and found.channel.unix) or ""
