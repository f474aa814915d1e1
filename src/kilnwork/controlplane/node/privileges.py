"""Privileges of a container: the part of its securityContext that applies to a process.

`container_plan` calls `privileges_of`, which does no I/O; `apply` runs in the shim, in the child
between fork and exec. The node does not switch users: a container that asks for another user than
the node's must wait, like a runAsNonRoot container that a kubelet would have to run as root.
Standard library only.
"""

import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Names of capabilities in the order of their numbers (capabilities(7))."""

ALL = "ALL"


class Privileges(NamedTuple):
    """Privileges that a process and its children have dropped."""

    no_new_privileges: bool = False
    dropped: tuple[int, ...] = ()
    """Numbers of dropped capabilities."""


class PrivilegeRefused(ValueError):
    """The container needs something that the user of the node does not allow.

    The message names the field.
    """


def privileges_of(
    pod: Mapping[str, Any], container: Mapping[str, Any], *, uid: int, gid: int, at: str
) -> Privileges:
    """Return the privileges that a container drops, from its securityContext and its Pod's.

    `uid` and `gid` are those of the node's user; `at` is the path of the container in its Pod.
    Raises `PrivilegeRefused`.
    """
    for field, what, ours in (("runAsUser", "user", uid), ("runAsGroup", "group", gid)):
        path, wanted = _effective(pod, container, field, at=at)
        if wanted is not None and wanted != ours:
            raise PrivilegeRefused(
                f"{path}: {wanted} is not the {what} of this node, whose processes all run as "
                f"{ours}; leave it out, or run the node as {wanted}"
            )
    path, non_root = _effective(pod, container, "runAsNonRoot", at=at)
    if non_root and uid == 0:
        raise PrivilegeRefused(
            f"{path}: container has runAsNonRoot, and this node runs as root; "
            "run the node as another user"
        )
    capabilities = container.get("capabilities") or {}
    dropped = _numbers(capabilities.get("drop") or ()) - _numbers(capabilities.get("add") or ())
    return Privileges(container.get("allowPrivilegeEscalation") is False, tuple(sorted(dropped)))


def _effective(
    pod: Mapping[str, Any], container: Mapping[str, Any], field: str, *, at: str
) -> tuple[str, Any]:
    """Return path and value of a field; the container's value overrides the Pod's."""
    if container.get(field) is not None:
        return f"{at}.securityContext.{field}", container[field]
    return f"spec.securityContext.{field}", pod.get(field)


def _numbers(names: Any) -> set[int]:
    numbers_by_name = {name: number for number, name in enumerate(CAPABILITIES)}
    short = {str(name).upper().removeprefix("CAP_") for name in names}
    return (
        set(numbers_by_name.values())
        if ALL in short
        else {numbers_by_name[n] for n in short & numbers_by_name.keys()}
    )


def apply(wanted: Privileges) -> None:
    """Drop privileges, in a child that is about to execute a program.

    Without CAP_SETPCAP, a process cannot remove capabilities from its bounding set. If its user is
    not root, no_new_privs is set instead: the process has no capabilities, and cannot get any from
    a file. Raises OSError, also for root without CAP_SETPCAP.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    any_kept = False
    for number in wanted.dropped:
        if libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            # The call fails without CAP_SETPCAP (capabilities(7)).
            any_kept = libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0 or any_kept
    if any_kept and os.geteuid() == 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
    never_more = wanted.no_new_privileges or any_kept
    if never_more and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")


def of_process(pid: int) -> Privileges:
    """Return the privileges that a running process has dropped (proc(5)).

    Raises OSError if the process has ended.
    """
    text = Path(f"/proc/{pid}/status").read_text()
    facts = dict(re.findall(r"^(\w+):\s*(\S+)$", text, re.MULTILINE))
    bounding = int(facts.get("CapBnd", "0"), 16)
    last = int(_LAST_CAPABILITY.read_text())
    missing = tuple(n for n in range(min(last + 1, len(CAPABILITIES))) if not bounding >> n & 1)
    return Privileges(facts.get("NoNewPrivs") == "1", missing)
