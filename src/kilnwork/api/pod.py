"""The parts of a core/v1 Pod that we read: where it runs and how its containers fare.

Used by the controllers, which never write back what went through these structs.
"""

from typing import Any

import msgspec

from kilnwork.api import meta


class Waiting(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 ContainerStateWaiting."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 ContainerStateTerminated."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 ContainerState: one of the three is there."""

    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 ContainerStatus; `last_state` is how the container ended before its restart."""

    name: str
    ready: bool = False
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 PodStatus; `reason` and `message` are set by a node that refuses or evicts it."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """core/v1 PodSpec."""

    node_name: str = ""


class Pod(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One Pod."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminating(self) -> bool:
        """True once somebody has asked for its deletion."""
        return self.metadata.deletion_timestamp is not None

    @property
    def over(self) -> bool:
        """True when none of its containers runs or will run again."""
        return self.status.phase in {"Succeeded", "Failed"}


def trouble(pod: Pod) -> str:
    """One sentence on what keeps the Pod from running, empty if nothing does."""
    if pod.status.phase == "Failed":
        return f"Pod {pod.metadata.name} failed: {_because(pod.status.reason, pod.status.message)}"
    for container in pod.status.container_statuses:
        waiting = container.state.waiting
        ended = container.state.terminated or container.last_state.terminated
        if waiting is not None and waiting.reason not in {"", "ContainerCreating"}:
            text = f"Pod {pod.metadata.name}: {_because(waiting.reason, waiting.message)}"
            return text + (f"; it last ended with {_ending(ended)}" if ended else "")
        if container.state.terminated is not None:
            return f"Pod {pod.metadata.name} ended with {_ending(container.state.terminated)}"
    return ""


def _because(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part) or "no reason given"


def _ending(ended: Terminated) -> str:
    code = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    detail = _because(ended.reason, ended.message) if ended.reason or ended.message else ""
    return f"{code} ({detail})" if detail else code
