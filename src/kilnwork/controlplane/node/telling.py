"""What the node says of its Pods: kube events, and the status when it is not as it should be.

Used by `reconciler`. What is to be said is decided by `statuses` and `lifecycle`.
"""

from typing import Any, NamedTuple

from kilnwork.api import resource
from kilnwork.controlplane.node import errors, held, lifecycle, pods, statuses
from kilnwork.kit import clock
from kilnwork.kube import client, events
from kilnwork.kube import errors as kube_errors


class Teller(NamedTuple):
    """Writes for one node, whose address all its Pods have."""

    kube: client.Client
    recorder: events.Recorder
    address: str
    now: clock.Clock

    def normal(self, pod: pods.Pod, reason: str, message: str) -> None:
        """A kube event of type Normal."""
        reference = events.reference(resource.PODS, pod)
        self.recorder.emit(reference, events.NORMAL, reason, message)

    def warn(self, pod: pods.Pod, reason: str, message: str) -> None:
        """A kube event of type Warning."""
        reference = events.reference(resource.PODS, pod)
        self.recorder.emit(reference, events.WARNING, reason, message)

    def not_yet(self, pod: pods.Pod, of: held.Held, name: str, error: errors.NotYet) -> None:
        """A container waits for something; told once."""
        message = str(error)
        if message != of.view(name).message:
            self.warn(pod, "Failed", f"Error: {message}")
        of.change(name, reason=error.reason, message=message)

    def refuse(self, pod: pods.Pod, of: held.Held, message: str) -> None:
        """The Pod can never run here; told once."""
        if message != of.refusal:
            self.warn(pod, statuses.UNSUPPORTED, message)
        of.refusal = message

    def ignored(self, pod: pods.Pod, of: held.Held) -> None:
        """Fields of the Pod have no effect here; told once."""
        if not of.ignored_told and (message := statuses.ignored_message(pod)):
            self.warn(pod, "FieldsIgnored", message)
        of.ignored_told = True

    async def write_status(self, pod: pods.Pod, of: held.Held, *, leaving: bool) -> None:
        """Patch the status if it is not as it should be.

        A list in a merge patch replaces the whole: the version makes sure that no condition is lost
        which somebody else has written meanwhile. Then the watch tells, and it is written again.
        """
        wanted = self._status(pod, of, leaving=leaving)
        known = pod.status if of.written is None else of.written
        if wanted is None or all(known.get(field) == value for field, value in wanted.items()):
            return
        m = pod.metadata
        version = of.version if of.seen == m.resource_version else m.resource_version
        patch = {"metadata": {"uid": m.uid, "resourceVersion": version}, "status": wanted}
        try:
            answer = await self.kube.merge_patch(
                resource.PODS, m.name, patch, m.namespace, subresource="status"
            )
        except (kube_errors.NotFound, kube_errors.Conflict):
            return  # it is gone, has changed, or another has its name: the watch will tell
        of.written = wanted
        of.seen, of.version = m.resource_version, str(answer["metadata"]["resourceVersion"])

    def _status(self, pod: pods.Pod, of: held.Held, *, leaving: bool) -> dict[str, Any] | None:
        """What is to be written; None if nothing is to be said now."""
        begun = any(view.last is not None for view in of.views.values())
        if pod.final and (not begun or of.refusal):
            return None
        if not begun and pod.metadata.deletion_timestamp is not None:
            return None
        if leaving and begun and not lifecycle.over(pod, of.views):
            return None  # the next process on this folder goes on with it
        if of.refusal:
            return statuses.refused(pod, of.refusal)
        facts = statuses.Facts(self.address, self.now.wall(), of.written)
        return statuses.status(pod, of.views, facts)

    async def remove(self, pod: pods.Pod) -> None:
        """Nothing of it is left here: the object may go."""
        m = pod.metadata
        try:
            await self.kube.delete(resource.PODS, m.name, m.namespace, uid=m.uid, grace_s=0)
        except (kube_errors.NotFound, kube_errors.Conflict):
            return
