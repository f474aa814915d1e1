"""Messages between agent and zygote, over a pair of sockets that keeps packets whole.

`ForkSlot` comes with three descriptors: the page of the slot, and both ends of the pipe for its
output. The secret by which the dispatcher knows the slot travels here and nowhere else: no
environment, argument or file ever holds it.
"""

import array
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

MAX_PACKET = 4096
ZYGOTE = "kiln-zygote"
"""What `ps` calls it."""

DESCRIPTORS = 3
"""Of a `ForkSlot`: page, read end, write end."""


class ForkSlot(msgspec.Struct, frozen=True, array_like=True, tag="fork"):
    """Fork slot `slot` (16 bytes), which says `secret` to the dispatcher."""

    slot: bytes
    secret: str


class KillSlot(msgspec.Struct, frozen=True, array_like=True, tag="kill"):
    """SIGKILL to the slot."""

    slot: bytes


class SlotForked(msgspec.Struct, frozen=True, array_like=True, tag="forked"):
    """The slot has a process."""

    slot: bytes
    pid: int


class SlotEnded(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """The slot has ended. `code`: 0 to 255, or minus the signal; None when it was never started.

    `message`: why not. `proof`: nothing that it started is left.
    """

    slot: bytes
    code: int | None
    message: str
    proof: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The zygote's first report: it has imported everything, and carries out orders."""


@dataclass(frozen=True, slots=True)
class ZygoteHandle:
    """A zygote that runs, and the agent's end of the link to it.

    `errors`: the file that is its standard error until it is ready.
    """

    pid: int
    link: socket.socket
    errors: int


Report = SlotForked | SlotEnded | Ready

_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[ForkSlot | KillSlot] = msgspec.msgpack.Decoder(ForkSlot | KillSlot)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends; close-on-exec. Raises OSError."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def open_errors_file() -> int:
    """What `ZygoteHandle.errors` is: an open file in memory; close-on-exec. Raises OSError."""
    return os.memfd_create("kiln-zygote-errors", os.MFD_CLOEXEC)


def send(
    link: socket.socket, message: ForkSlot | KillSlot | Report, descriptors: Sequence[int] = ()
) -> None:
    """One packet. Raises BlockingIOError when a non-blocking `link` is full, OSError when cut."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    link.sendmsg([_encoder.encode(message)], rights if descriptors else [])


def receive_order(link: socket.socket) -> tuple[ForkSlot | KillSlot | None, list[int]]:
    """The next order and its descriptors, close-on-exec; None when the agent is gone."""
    data, descriptors, _, _ = socket.recv_fds(link, MAX_PACKET, DESCRIPTORS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # recv_fds cannot ask for close-on-exec
    return (_orders.decode(data) if data else None), descriptors


def receive_report(link: socket.socket) -> Report | None:
    """The next report; None when the zygote is gone. Raises BlockingIOError when there is none."""
    data = link.recv(MAX_PACKET)
    return _reports.decode(data) if data else None
