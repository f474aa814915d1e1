"""The cells of a Pod in `kubectl get pods`: ready, status, restarts, and where it runs.

Used by `tables`. Follows printPod of k8s.io/kubernetes/pkg/printers/internalversion, without init
containers that restart (nothing here runs them).
"""

from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import durations

_NONE = "<none>"


def cells(pod: meta.JsonObject, now: float) -> list[Any]:
    """Ready, Status, Restarts, Age; then IP, Node, Nominated Node and Readiness Gates."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for c in statuses if c.get("ready") and "running" in (c.get("state") or {}))
    return [
        f"{ready}/{len(spec.get('containers') or ())}",
        _status(pod),
        _restarts(statuses, now),
        durations.age(pod, now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def _status(pod: meta.JsonObject) -> str:
    status = pod.get("status") or {}
    word = status.get("reason") or status.get("phase") or ""
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = terminated.get("reason") or _ended(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if word == "Completed" and running:
        word = "Running" if _is_ready(status) else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        over = status.get("phase") in ("Succeeded", "Failed")
        return word if over else "Terminating"
    return str(word)


def _ended(terminated: meta.JsonObject) -> str:
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _is_ready(status: meta.JsonObject) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )


def _restarts(statuses: list[meta.JsonObject], now: float) -> str:
    count = sum(int(c.get("restartCount") or 0) for c in statuses)
    ends = [
        ((c.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for c in statuses
    ]
    latest = max((e for e in ends if e), default=None)
    if count == 0 or latest is None:
        return str(count)
    return f"{count} ({durations.since(latest, now)} ago)"


def _gates(spec: meta.JsonObject, status: meta.JsonObject) -> str:
    gates = [g.get("conditionType") for g in spec.get("readinessGates") or ()]
    if not gates:
        return _NONE
    true = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate in true)}/{len(gates)}"
