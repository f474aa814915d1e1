"""The message with which a container ended, as its terminationMessagePolicy asks.

Used by `container_files`, which has the file for it made, and by `reconciler`. The file is where
the container says, below its root; with `FallbackToLogsOnError` the end of the log takes its place
(k8s.io/kubernetes pkg/kubelet/kuberuntime, getTerminationMessage).
"""

import os
import stat
from pathlib import Path

from kilnwork.controlplane.node import container as containers
from kilnwork.controlplane.node import log_reader, pods, volume_sources

MAX_LINES = 80
MAX_LOG_BYTES = 2048
MAX_BYTES = 4096
"""All three are the kubelet's (MaxContainerTerminationMessageLogLines, …LogLength, …Length)."""

DEFAULT_PATH = "/dev/termination-log"
"""core/v1 DefaultTerminationMessagePath."""


def make_file(root: Path, of: pods.Container) -> None:
    """Make the empty file for the message of a container that is about to start.

    Raises `Unsupported` for a path that leaves the root, OSError.
    """
    path = _path(root, of)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o666)


def with_message(
    pod: pods.Pod | None, name: str, record: containers.ContainerRecord
) -> containers.ContainerRecord:
    """The record of a container that has ended, with what it has left as its message: also of one
    whose end nothing has seen."""
    wanted = pod.container(name) if pod is not None else None
    known = record.message and record.reason != containers.UNSEEN
    if wanted is None or known or record.exit_code is None:
        return record
    said = _tail(_path(containers.root(record), wanted))
    falls_back = wanted.termination_message_policy == "FallbackToLogsOnError"
    if not said and falls_back and record.exit_code:
        said = log_reader.tail(containers.log_path(record), lines=MAX_LINES)[-MAX_LOG_BYTES:]
    return record._replace(message=said.decode("utf-8", "replace") or record.message)


def _path(root: Path, of: pods.Container) -> Path:
    path = str(of.termination_message_path or DEFAULT_PATH)
    return root / volume_sources.inside(path.lstrip("/"))


def _tail(path: Path) -> bytes:
    """The end of the file, which is the container's: whatever else it has put there is no message,
    nor is there one where the file is not to be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            return b""
        file.seek(max(0, seen.st_size - MAX_BYTES))
        return file.read(MAX_BYTES)
