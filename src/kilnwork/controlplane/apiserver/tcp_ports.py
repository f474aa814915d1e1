"""Two adjacent ports of 127.0.0.1: one for TLS, the next for plain HTTP.

Used by `cluster`, which serves the app on both ports. Error messages name the process that holds a
port.
"""

import contextlib
import socket
from pathlib import Path

import msgspec

from kilnwork.kit import errors, ids, serving

HOST = "127.0.0.1"
_FREE_PORT_TRIES = 100
_LOWEST_FREE_PORT = 10240
_LAST_PORT = 65535
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports(msgspec.Struct, frozen=True):
    """Two bound sockets on adjacent ports, the first for TLS and the second for plain HTTP."""

    tls: socket.socket
    plain: socket.socket

    @property
    def number(self) -> int:
        """Return the TLS port; plain HTTP is on the next one."""
        return int(self.tls.getsockname()[1])

    def close(self) -> None:
        """Release both ports."""
        self.tls.close()
        self.plain.close()


def bind(port: int, *, preferred: int | None = None, entropy: ids.Entropy | None = None) -> Ports:
    """Bind `port` and the next one, or a free pair if `port` is 0.

    `preferred` is the first port of the pair to use if it is free. A free pair lies below the
    kernel's ephemeral ports, so that after a crash no outgoing connection occupies it when the next
    server wants it again. Raises ConfigurationError naming the process that holds the port.
    """
    if port:
        return _bind_pair(port)
    for candidate in [preferred] if preferred else []:
        try:
            return _bind_pair(candidate)
        except errors.ConfigurationError:
            break
    below = _lasting_ports()
    chance = entropy or ids.system_entropy()
    for _ in range(_FREE_PORT_TRIES):
        pair = _try_pair(chance.choice(below) if below else 0)
        if pair is not None:
            return pair
    raise errors.ConfigurationError("no two free ports next to each other on 127.0.0.1")


def _lasting_ports() -> range:
    """Return the first ports of all pairs below the ephemeral range; empty if there are none."""
    try:
        first_ephemeral = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    # The second port of the pair must be below the ephemeral range too.
    return range(_LOWEST_FREE_PORT, first_ephemeral - 1)


def _try_pair(port: int) -> Ports | None:
    """Return the pair that begins with `port`, or None if one of its ports is in use.

    For port 0, the pair begins with any free port.
    """
    try:
        first = serving.bind(HOST, port)
    except OSError:
        return None
    number = int(first.getsockname()[1])
    try:
        if number < _LAST_PORT:
            return Ports(first, serving.bind(HOST, number + 1))
    except OSError:
        pass
    first.close()
    return None


def _bind_pair(port: int) -> Ports:
    if not 1 <= port <= 65534:
        raise errors.ConfigurationError(f"port {port}: choose one from 1 to 65534")
    bound: list[socket.socket] = []
    for number in (port, port + 1):
        try:
            bound.append(serving.bind(HOST, number))
        except OSError as error:
            for earlier in bound:
                earlier.close()
            raise errors.ConfigurationError(_in_use(number, port, error)) from error
    return Ports(*bound)


def _in_use(number: int, port: int, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"port {number} on {HOST} is reserved for root: choose a --port from 1024 up"
    holder = port_holder(number)
    held = f"is in use by {holder}" if holder else f"cannot be used: {error.strerror}"
    need = "" if number == port else f" (plain http goes to the port after {port})"
    return f"port {number} on {HOST} {held}{need}: stop that process, or choose another --port"


def port_holder(port: int) -> str:
    """Return `process PID (command)` for the process that listens on the port.

    Returns "" if the process cannot be determined.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and wanted & _open_files(entry):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                return f"process {entry.name} ({command[:80]})"
    return ""


def _open_files(process: Path) -> set[str]:
    """Return the link targets of a process's descriptors; empty if they are not readable."""
    targets: set[str] = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                targets.add(str(descriptor.readlink()))
    return targets


def _listening(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on a port (proc(5), /proc/net/tcp)."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # State 0A is TCP_LISTEN.
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                # Field 9 is the inode of the socket.
                inodes.add(fields[9])
    return inodes
