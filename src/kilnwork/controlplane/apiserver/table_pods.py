"""Table cells of a Pod in `kubectl get pods`: ready, status, restarts, and where it runs.

Used by `tables`. Follows printPod of k8s.io/kubernetes/pkg/printers/internalversion.
"""

from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import human_durations

_NONE = "<none>"
_NODE_LOST = "NodeLost"
_ENDED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def cells(pod: meta.JsonObject, now: float) -> list[Any]:
    """Return Ready, Status, Restarts, Age, IP, Node, Nominated Node and Readiness Gates."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    summary = _Reading(pod)
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        f"{summary.ready}/{summary.total}",
        summary.word(),
        summary.restarts(now),
        human_durations.age(pod, now),
        addresses[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def conditions(pod: meta.JsonObject) -> list[meta.JsonObject]:
    """Return the conditions of the Pod's row: Completed if the Pod has finished."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in _ENDED:
        return []
    condition = {"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}
    return [condition]


class _Reading:
    """Summary of one Pod's containers, evaluated in the order of printPod."""

    def __init__(self, pod: meta.JsonObject) -> None:
        self._pod = pod
        self._status = pod.get("status") or {}
        spec = pod.get("spec") or {}
        self._inits = {c.get("name"): c for c in spec.get("initContainers") or ()}
        self.total = len(spec.get("containers") or ()) + sum(map(_is_sidecar, self._inits.values()))
        self.ready = 0
        self._counted: list[meta.JsonObject] = []
        self._word = self._status.get("reason") or self._status.get("phase") or ""
        if any(
            c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated"
            for c in self._status.get("conditions") or ()
        ):
            self._word = "SchedulingGated"
        initializing = self._read_inits()
        if not initializing or _is_true(self._status, "Initialized"):
            self._read_containers()

    def _read_inits(self) -> bool:
        """Evaluate the init containers. Return whether one of them has not finished."""
        for position, container in enumerate(self._status.get("initContainerStatuses") or ()):
            self._counted.append(container)
            state = container.get("state") or {}
            ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
            if ended is not None and ended.get("exitCode", 0) == 0:
                continue
            if self._is_sidecar(container) and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if ended is not None:
                self._word = f"Init:{_end(ended)}"
            elif waiting and waiting != "PodInitializing":
                self._word = f"Init:{waiting}"
            else:
                self._word = f"Init:{position}/{len(self._inits)}"
            return True
        return False

    def _read_containers(self) -> None:
        # Restarts of init containers are shown only until these have finished.
        self._counted = [c for c in self._counted if self._is_sidecar(c)]
        running = False
        # In reverse order, as in printPod, so that the word of the first container is kept.
        for container in reversed(self._status.get("containerStatuses") or []):
            self._counted.append(container)
            state = container.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                self._word = state["waiting"]["reason"]
            elif state.get("terminated") is not None:
                self._word = _end(state["terminated"])
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        # Some containers have completed while others still run.
        if self._word == "Completed" and running:
            self._word = "Running" if _is_true(self._status, "Ready") else "NotReady"

    def word(self) -> str:
        """Return the content of the cell Status."""
        if not self._pod["metadata"].get("deletionTimestamp"):
            return str(self._word)
        if self._status.get("reason") == _NODE_LOST:
            return "Unknown"
        finished = self._status.get("phase") in _ENDED
        return str(self._word) if finished else "Terminating"

    def restarts(self, now: float) -> str:
        """Return the content of the cell Restarts: the count, and the age of the last restart."""
        count = sum(int(c.get("restartCount") or 0) for c in self._counted)
        ends = [
            ((c.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
            for c in self._counted
        ]
        latest = max((e for e in ends if e), default=None)
        if count == 0 or latest is None:
            return str(count)
        return f"{count} ({human_durations.since(latest, now)} ago)"

    def _is_sidecar(self, status: meta.JsonObject) -> bool:
        return _is_sidecar(self._inits.get(status.get("name")) or {})


def _is_sidecar(container: meta.JsonObject) -> bool:
    return container.get("restartPolicy") == "Always"


def _end(terminated: meta.JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_true(status: meta.JsonObject, condition: str) -> bool:
    return any(
        c.get("type") == condition and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )


def _gates(spec: meta.JsonObject, status: meta.JsonObject) -> str:
    gates = [g.get("conditionType") for g in spec.get("readinessGates") or ()]
    if not gates:
        return _NONE
    return f"{sum(_is_true(status, gate) for gate in gates)}/{len(gates)}"
