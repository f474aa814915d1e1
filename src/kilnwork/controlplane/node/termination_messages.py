"""Termination message of a container, according to its terminationMessagePolicy.

Used by `container_preparation`, which has the message file created, and by `reconciler`. The file
is at the path that the container names, below its root. With `FallbackToLogsOnError`, the end of
the log replaces an empty message (k8s.io/kubernetes pkg/kubelet/kuberuntime,
getTerminationMessage).
"""

import os
import stat
from pathlib import Path

from kilnwork.controlplane.node import log_reader, pod_types, volume_sources
from kilnwork.controlplane.node import shim_container as containers

MAX_LINES = 80
MAX_LOG_BYTES = 2048
MAX_BYTES = 4096
"""All three limits are the kubelet's (MaxContainerTerminationMessageLogLines, …LogLength,
…Length)."""

DEFAULT_PATH = "/dev/termination-log"
"""core/v1 DefaultTerminationMessagePath."""


def make_file(root: Path, container: pod_types.Container) -> None:
    """Create the empty message file of a container that is about to start.

    Raises OSError, and `Unsupported` for a path outside of the root.
    """
    path = _path(root, container)
    path.parent.mkdir(parents=True, exist_ok=True)
    # An earlier start may have left a link here, which must not be followed.
    path.unlink(missing_ok=True)
    path.touch(mode=0o666)


def with_message(
    pod: pod_types.Pod | None, name: str, record: containers.ContainerRecord
) -> containers.ContainerRecord:
    """Return the record of a container, with its termination message if it has ended.

    Containers whose end was not seen get a message too.
    """
    wanted = pod.container(name) if pod is not None else None
    # The message of an unseen end is ours; the message of the container replaces it.
    has_message = record.message and record.reason != containers.UNSEEN
    if wanted is None or has_message or record.exit_code is None:
        return record
    message = _tail(_path(containers.root(record), wanted))
    falls_back = wanted.termination_message_policy == "FallbackToLogsOnError"
    if not message and falls_back and record.exit_code:
        message = log_reader.tail(containers.log_path(record), lines=MAX_LINES)[-MAX_LOG_BYTES:]
    return record._replace(message=message.decode("utf-8", "replace") or record.message)


def _path(root: Path, container: pod_types.Container) -> Path:
    path = str(container.termination_message_path or DEFAULT_PATH)
    return root / volume_sources.normalize_inside(path.lstrip("/"))


def _tail(path: Path) -> bytes:
    """Return the end of the file, or b"" if it is not a readable regular file.

    The path is under the container's control and may be any type of file.
    """
    try:
        # O_NONBLOCK: a FIFO would block us. O_NOFOLLOW: a link may lead to a file of the node.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            return b""
        file.seek(max(0, file_status.st_size - MAX_BYTES))
        return file.read(MAX_BYTES)
