"""The fields of a core/v1 Pod that kilnwork reads: its node and the state of its containers.

Used by the controllers and executors, which never write objects back from these structs.
"""

import enum
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.kit import clock


class Waiting(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a container that waits to start (core/v1 ContainerStateWaiting)."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a container that has ended (core/v1 ContainerStateTerminated)."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    """When the container ended; None also for a container that never ran (kubelet,
    `ContainerStatusUnknown`)."""


class ContainerState(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """core/v1 ContainerState: one of the three fields is set."""

    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None

    @property
    def started(self) -> float | None:
        """When the container started, in seconds since the epoch; None if unknown."""
        if self.running is not None:
            return parse_time(self.running.get("startedAt"))
        return None if self.terminated is None else parse_time(self.terminated.started_at)


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """core/v1 ContainerStatus; `last_state` describes the end of the container before its restart.

    `container_id`: SCHEME://ID, or "" before the container was created.
    """

    name: str
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def ended(self) -> Terminated | None:
        """How the container ended, if it is not running."""
        if self.state.running is not None:
            return None
        return self.state.terminated or self.last_state.terminated


class PodCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A condition of a Pod (core/v1 PodCondition)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """core/v1 PodStatus; `reason` and `message` are set by a node that refuses or evicts the
    Pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[PodCondition, ...] = ()


class Named(msgspec.Struct, frozen=True, gc=False):
    """An ephemeral container, a volume or a scheduling gate, of which only the name is read."""

    name: str


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A container of a Pod (core/v1 Container)."""

    name: str
    image: str = ""
    image_pull_policy: str = ""
    working_dir: str = ""
    security_context: dict[str, Any] | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The spec of a Pod (core/v1 PodSpec)."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Named, ...] = ()
    volumes: tuple[Named, ...] = ()
    scheduling_gates: tuple[Named, ...] = ()


class Pod(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A Pod (core/v1 Pod)."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminating(self) -> bool:
        """Whether deletion of the Pod was requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def disruption(self) -> str:
        """Why Kubernetes evicts the Pod from its node, or "" if it does not.

        From the condition DisruptionTarget,
        https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
        """
        for condition in self.status.conditions:
            if (condition.type, condition.status) == ("DisruptionTarget", "True"):
                return _because(condition.reason, condition.message)
        return ""

    @property
    def node_lost_since(self) -> str | None:
        """Since when Kubernetes considers the node of the Pod lost; None if it does not.

        A kubelet that reports a Pod as not ready also reports its containers, or a gate, as not
        ready. The node controller changes only the condition Ready (kubernetes
        pkg/controller/util/node, MarkPodsNotReady). Not every manager may read the Node itself.
        """
        found = {condition.type: condition for condition in self.status.conditions}
        ready, containers = found.get("Ready"), found.get("ContainersReady")
        if ready is None or containers is None:
            return None
        by_node = (ready.status, containers.status, ready.reason) == ("False", "True", "")
        return ready.last_transition_time or "" if by_node else None

    @property
    def is_finished(self) -> bool:
        """Whether no container of the Pod runs or will run again."""
        return self.status.phase in {"Succeeded", "Failed"}


_NO_TIME = 86_400.0 * 366
"""Bound below which a time counts as unknown: a kubelet writes times in 1970 for these."""


def parse_time(text: str | None) -> float | None:
    """Return the time in a status, in seconds since the epoch; None if there is none."""
    if not text:
        return None
    seconds = clock.parse_rfc3339(text)
    return seconds if seconds > _NO_TIME else None


class TroubleKind(enum.Enum):
    """The kind of a Pod's problem."""

    UNSCHEDULABLE = enum.auto()
    NO_IMAGE = enum.auto()
    FAILING = enum.auto()


class PodTrouble(NamedTuple):
    """The problem that prevents a Pod from running, with `text` as one sentence."""

    kind: TroubleKind
    text: str


_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that is not in trouble."""

_NO_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Reasons of a container whose image is not available: those of kubernetes
pkg/kubelet/images/types.go and of cri-api pkg/errors."""


def find_trouble(pod: Pod) -> PodTrouble | None:
    """Return what prevents a Pod from running, or None if no problem is known."""
    name = pod.metadata.name
    if pod.status.phase == "Failed":
        why = _because(pod.status.reason, pod.status.message)
        return PodTrouble(TroubleKind.FAILING, f"Pod {name} failed: {why}")
    for condition in pod.status.conditions:
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            why = _because(condition.reason, condition.message)
            return PodTrouble(TroubleKind.UNSCHEDULABLE, f"Pod {name} has no node: {why}")
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for container in containers:
        of = f"container {container.name} of " if len(containers) > 1 else ""
        found = _of_container(f"{of}Pod {name}", container)
        if found is not None:
            return found
    return None


def _of_container(subject: str, container: ContainerStatus) -> PodTrouble | None:
    waiting, ended = container.state.waiting, container.state.terminated
    before = ended or container.last_state.terminated
    if waiting is not None and waiting.reason not in _ON_ITS_WAY:
        text = f"{subject}: {_because(waiting.reason, waiting.message)}"
        if waiting.reason in _NO_IMAGE:
            return PodTrouble(TroubleKind.NO_IMAGE, text)
        return PodTrouble(
            TroubleKind.FAILING,
            text + (f"; it last ended with {_describe_end(before)}" if before else ""),
        )
    if ended is not None and ended.reason != "Completed":
        return PodTrouble(TroubleKind.FAILING, f"{subject} ended with {_describe_end(ended)}")
    if before is not None and container.restart_count:
        times = f"{container.restart_count} times" if container.restart_count > 1 else "once"
        text = f"{subject} was started again {times}; it last ended with {_describe_end(before)}"
        return PodTrouble(TroubleKind.FAILING, text)
    return None


def _because(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part) or "no reason given"


def _describe_end(ended: Terminated) -> str:
    code = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    detail = _because(ended.reason, ended.message) if ended.reason or ended.message else ""
    return f"{code} ({detail})" if detail else code
