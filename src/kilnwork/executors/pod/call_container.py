"""The container that runs the Python call of an attempt in a Pod of its own.

No I/O. Used by `template` for tasks with `call` and `pod`. The container runs
`kilnwork.worker.pod_call`, which talks to the manager itself: it mounts the token that the sidecar
mounts in other Pods, and the Pod has no sidecar.
"""

from typing import Any

from kilnwork.executors import port
from kilnwork.executors.pod import sidecar_container

MODULE = "kilnwork.worker.pod_call"
CONTAINER = "main"
"""Name of the container of a template that has none."""


def add(
    spec: dict[str, Any], attempt: port.Attempt, settings: sidecar_container.SidecarOptions
) -> None:
    """Complete the single container of a Pod's spec, in place, so that it runs the call.

    Its `command`, if it has one, is the Python interpreter to use.
    """
    container = spec["containers"][0]
    container.setdefault("name", CONTAINER)
    container.setdefault("image", settings.image)
    python = container.get("command") or settings.command[:1]
    container["command"] = [*python, "-m", MODULE]
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    ours = sidecar_container.access(attempt, settings)
    names = {entry["name"] for entry in ours}
    own = [entry for entry in container.get("env") or () if entry.get("name") not in names]
    container["env"] = [*ours, *own]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or ()),
        sidecar_container.TOKEN_MOUNT,
    ]
    spec["volumes"] = [*(spec.get("volumes") or ()), sidecar_container.token_volume()]
