"""The container of a Pod that runs one Python call. Pure.

Used by `template` for tasks with `call` and `pod`. The container runs `kilnwork.worker.pod_call`,
which speaks to the manager itself: it has the token that a sidecar has in other Pods, so that there
is none beside it.
"""

from typing import Any

from kilnwork.executors import port
from kilnwork.executors.pod import sidecar

MODULE = "kilnwork.worker.pod_call"
CONTAINER = "main"
"""Name of the container of a template that has none."""


def add(spec: dict[str, Any], attempt: port.Attempt, settings: sidecar.SidecarOptions) -> None:
    """Complete the one container of the spec of a Pod, in place, so that it runs the call.

    Its `command`, if it has one, is the Python that does.
    """
    container = spec["containers"][0]
    container.setdefault("name", CONTAINER)
    container.setdefault("image", settings.image)
    python = container.get("command") or settings.command[:1]
    container["command"] = [*python, "-m", MODULE]
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    ours = sidecar.access(attempt, settings)
    names = {entry["name"] for entry in ours}
    own = [entry for entry in container.get("env") or () if entry.get("name") not in names]
    container["env"] = [*ours, *own]
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), sidecar.TOKEN_MOUNT]
    spec["volumes"] = [*(spec.get("volumes") or ()), sidecar.token_volume()]
