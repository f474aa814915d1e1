"""Sentence about the workers of a TaskCluster.

Used by `kiln why`. Reads the object as the API server sends it.
"""

from typing import Any


def sentence(found: dict[str, Any]) -> str:
    """Return a sentence about the workers of a TaskCluster: their number, their use, outdated
    ones.
    """
    name, spec, status = found["metadata"]["name"], found["spec"], found.get("status") or {}
    if not status.get("conditions"):
        return f"TaskCluster {name} has not been processed yet."
    slots = status.get("slots") or {}
    text = (
        f"TaskCluster {name}: {status.get('readyReplicas', 0)} of {spec.get('replicas', 1)} workers"
        f" connected, {slots.get('busy', 0)} of {slots.get('total', 0)} slots busy,"
        f" {status.get('queued', 0)} tasks queued"
    )
    outdated = status.get("outdatedReplicas", 0)
    if outdated:
        text += f", {outdated} of {status.get('replicas', 0)} workers outdated"
    ready: dict[str, Any] = next((c for c in status["conditions"] if c["type"] == "Ready"), {})
    text += f" ({ready.get('reason', 'Unknown')}): {ready.get('message', '')}"
    others = [c for c in status["conditions"] if c["type"] not in ("Ready", "Available")]
    for condition in others:
        text += f"; {condition['type']}: {condition.get('message', '')}"
    return f"{text}."
