"""Drain of a node that is to be removed: evicts every Pod, as `kubectl drain` does.

Used by `local_node`. Pods are evicted (policy/v1) and not deleted, so that disruption budgets are
respected: a Pod that may not be evicted yet is tried again. Pods of DaemonSets, which would be
created again at once, end with the node.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from kilnwork.api import api_resources
from kilnwork.controlplane.node import pod_types
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

LOOK_S = 0.25
AGAIN_LOOKS = 20
"""Rounds between two evictions of the same Pod: five seconds, as with kubectl."""

Say = Callable[[str], None]


async def drain(
    kube: client.Client, known: Callable[[], Sequence[pod_types.Pod]], say: Say
) -> None:
    """Evict Pods until only Pods of DaemonSets are left. Raises KubeError.

    `known` returns the present Pods of the node. `say` is called with each step for the user.
    """
    looks: dict[str, int] = {}
    refusals: dict[str, str] = {}
    while left := [pod for pod in known() if not _is_daemon(pod)]:
        refused = [refusals[pod.metadata.uid] for pod in left if refusals.get(pod.metadata.uid)]
        say(refused[0] if refused else f"ending {len(left)} Pods, {_name(left[0])} among them")
        for pod in left:
            turn = looks.get(pod.metadata.uid, 0)
            looks[pod.metadata.uid] = turn + 1
            if pod.metadata.deletion_timestamp is not None:
                refusals.pop(pod.metadata.uid, None)
            elif turn % AGAIN_LOOKS == 0:
                refusals[pod.metadata.uid] = await _evict(kube, pod)
        await asyncio.sleep(LOOK_S)


async def _evict(kube: client.Client, pod: pod_types.Pod) -> str:
    """Evict a Pod. Return why it was refused and has to be tried again; otherwise "".

    Raises KubeError without a response.
    """
    name, namespace = pod.metadata.name, pod.metadata.namespace
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    try:
        await kube.create_sub(api_resources.PODS, name, "eviction", eviction, namespace)
    except errors.TooManyRequests as error:
        return f"{_name(pod)} may not be evicted yet: {error}"
    except (errors.NotFound, errors.Conflict):
        return ""  # the Pod is gone, or has changed: then it is evicted again in a later round
    except errors.ApiError as error:
        if error.status == 0:
            raise  # no response: the caller calls `drain` again, or reports it
        # `say` may go nowhere: a removal that was requested by a mark on the Node has no terminal.
        log.warning("Pod not evicted yet", extra={"pod": _name(pod), "error": str(error)})
        return f"{_name(pod)} cannot be evicted: {error}"
    return ""


def _is_daemon(pod: pod_types.Pod) -> bool:
    owner = pod.metadata.controller()
    return owner is not None and owner.kind == "DaemonSet"


def _name(pod: pod_types.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
