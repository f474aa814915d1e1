"""Messages between agent and zygote, over a pair of sockets that preserves message boundaries.

`ForkSlot` is sent with three descriptors: the slot's page, and both ends of the pipe for its
output. The secret by which the slot authenticates to the dispatcher is sent over this link only: it
is in no environment, argument list or file.
"""

import array
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

MAX_PACKET = 4096
ZYGOTE = "kiln-zygote"
"""Name of the zygote's process, as `ps` shows it."""

DESCRIPTORS = 3
"""Number of descriptors that are sent with a `ForkSlot`: page, read end, write end."""


class ForkSlot(msgspec.Struct, frozen=True, array_like=True, tag="fork"):
    """Order to fork a slot.

    `slot`: its name, 16 bytes. `secret`: by which it authenticates to the dispatcher.
    """

    slot: bytes
    secret: str


class KillSlot(msgspec.Struct, frozen=True, array_like=True, tag="kill"):
    """Order to send SIGKILL to a slot."""

    slot: bytes


class SlotForked(msgspec.Struct, frozen=True, array_like=True, tag="forked"):
    """Report that a slot's process was started."""

    slot: bytes
    pid: int


class SlotEnded(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """Report that a slot has ended.

    `code`: exit code 0 to 255, or minus the signal; None if the slot was never started. `message`:
    why it was not started. `proof`: whether no process that it started is left.
    """

    slot: bytes
    code: int | None
    message: str
    proof: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Report that the zygote has imported everything and carries out orders; the first report of a
    zygote.
    """


@dataclass(frozen=True, slots=True)
class ZygoteHandle:
    """A running zygote, and the agent's end of the link to it.

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
    """Create a link; return its two sockets, close-on-exec. Raises OSError."""
    # SOCK_SEQPACKET keeps messages apart, and descriptors come with their own message.
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def open_errors_file() -> int:
    """Return the descriptor of a new file in memory, for `ZygoteHandle.errors`, close-on-exec.

    Raises OSError.
    """
    # A file, not a pipe: writing never blocks, and it can be read after its writer has died.
    return os.memfd_create("kiln-zygote-errors", os.MFD_CLOEXEC)


def send(
    link: socket.socket, message: ForkSlot | KillSlot | Report, descriptors: Sequence[int] = ()
) -> None:
    """Send one message over the link.

    Raises BlockingIOError if `link` is non-blocking and full, OSError if it is closed.
    """
    # The kernel keeps the files open while they are in transit: the sender may close its
    # descriptors.
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    link.sendmsg([_encoder.encode(message)], rights if descriptors else [])


def receive_order(link: socket.socket) -> tuple[ForkSlot | KillSlot | None, list[int]]:
    """Return the next order to the zygote and its descriptors, close-on-exec.

    The order is None when the agent is gone.
    """
    data, descriptors, _, _ = socket.recv_fds(link, MAX_PACKET, DESCRIPTORS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # recv_fds cannot ask for close-on-exec
    # No message is empty, so an empty read means that the other end is closed.
    return (_orders.decode(data) if data else None), descriptors


def receive_report(link: socket.socket) -> Report | None:
    """Return the next report of the zygote; None when the zygote is gone.

    Raises BlockingIOError when there is no report yet.
    """
    data = link.recv(MAX_PACKET)
    return _reports.decode(data) if data else None
