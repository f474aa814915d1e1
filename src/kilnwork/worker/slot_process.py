"""A slot: a process that runs one call at a time, forked from the zygote.

Used by `zygote`, which calls `run_slot` in the new process, and by `pod_call` for its logs. This
module prepares the process: a session of its own, a subreaper (so that everything it starts stays
below it), its output as a pipe, and a stack for a thousand nested calls. `slot_session` does the
rest.
"""

import logging
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass

from kilnwork.channel import blocking_link
from kilnwork.channel import errors as channel_errors
from kilnwork.data import local_blobs
from kilnwork.kit import clock as clocks
from kilnwork.kit import processes
from kilnwork.worker import slot_page, slot_session

NAME = "kiln-slot"
"""Name of a slot's process, as `ps` shows it."""

STACK_BYTES = 120 << 20
"""Maximum bytes of the stack of the main thread. When a program starts, Linux keeps 128 MiB free
below its stack, whatever the limit is then (mmap_base in arch/x86/mm/mmap.c).
"""

_OURS = ("kilnwork.channel", "kilnwork.data", "kilnwork.worker")
"""Names of the loggers that belong to the slot; all other loggers are the task's."""


@dataclass(frozen=True, slots=True)
class SlotSurroundings:
    """The resources that all slots of a worker share.

    `channel`: path of the dispatcher's Unix socket. `open_blobs`: opens the blobs of a namespace;
    None where the dispatcher's directory can be read.
    """

    channel: str
    clock: clocks.Clock
    open_blobs: Callable[[str], local_blobs.Blobs] | None = None


@dataclass(frozen=True, slots=True)
class SlotParameters:
    """The identity of one slot, and the descriptors that it owns.

    `zygote`: pid of the process that forks the slot. `page`, `reading`, `writing`: see
    `zygote_link`.
    """

    zygote: int
    slot: bytes
    secret: str
    page: int
    reading: int
    writing: int


def run_slot(here: SlotSurroundings, parameters: SlotParameters) -> None:
    """Run the calls of a slot until the link ends.

    Does not return in the slot's process: `SlotSession.link_ended` exits it, also when the link
    could not be opened.
    """
    # A session of its own: Ctrl-C at the worker's terminal must not reach the slot.
    os.setsid()
    # The kernel sends this signal when the forking thread ends; the zygote has only one thread.
    processes.die_with_parent(parameters.zygote)
    processes.become_subreaper()
    processes.rename(NAME)
    # The kernel should rather kill a slot than the agent or the zygote.
    processes.offer_to_oom_killer(os.getpid())
    _widen_stack()
    quieten_logs()
    page = slot_page.SlotPage(parameters.page)
    held = slot_session.SlotSession(
        slot=parameters.slot,
        secret=parameters.secret,
        connect=lambda: blocking_link.unix(here.channel),
        clock=here.clock,
        page=page,
        pipe=(parameters.reading, parameters.writing),
        open_blobs=here.open_blobs,
    )
    try:
        held.link.open(timeout_s=slot_session.PATIENCE_S)
        held.work()
    except channel_errors.ChannelError:
        return


def _widen_stack() -> None:
    """Raise the stack limit for this process and its children.

    Threads keep the stack size that their library has already read.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def quieten_logs() -> None:
    """Send kilnwork's own log records to descriptor 2 as it is now, and leave other logging to user
    code, as in any program.

    In a slot, descriptor 2 is the agent's log at this time. Only warnings and errors are sent.
    """
    root = logging.getLogger()
    # A copy: in a slot, descriptor 2 becomes the pipe for the task's output.
    stream = open(os.dup(2), "w", buffering=1, errors="replace")  # noqa: SIM115, PTH123
    for handler in root.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(stream)
    for name in _OURS:
        ours = logging.getLogger(name)
        # The list is copied, since the root's list is cleared below.
        ours.handlers[:] = root.handlers
        ours.propagate = False
        ours.setLevel(logging.WARNING)
    root.handlers.clear()
    root.setLevel(logging.WARNING)
