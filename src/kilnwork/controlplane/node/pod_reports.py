"""Reports of the node about its Pods: kube events, and changes of the status.

Used by `reconciler`. `statuses` and `pod_decisions` decide about the content.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import api_resources
from kilnwork.controlplane.node import (
    container_plan,
    errors,
    pod_decisions,
    pod_state,
    pod_types,
    statuses,
)
from kilnwork.kit import clock, http_types
from kilnwork.kube import client, events
from kilnwork.kube import errors as kube_errors

STARTED_S = 0.05
"""Delay of the report that an ephemeral container has started: if it ends by then, only the end is
written. A kubelet checks its containers once a second."""

SIDECAR_S = 0.2
"""Delay of status changes of a Pod with sidecars, until the Pod has ended or is being deleted. Such
a Pod has more steps (sidecars start before the other containers and end after them)."""


class PodReporter(NamedTuple):
    """Writes events and statuses of the Pods of one node. All Pods have the node's address."""

    kube: client.Client
    recorder: events.Recorder
    address: str
    now: clock.Clock

    def normal(self, pod: pod_types.Pod, reason: str, message: str) -> None:
        """Emit a kube event of type Normal."""
        reference = events.reference(api_resources.PODS, pod)
        self.recorder.emit(reference, events.NORMAL, reason, message)

    def warn(self, pod: pod_types.Pod, reason: str, message: str) -> None:
        """Emit a kube event of type Warning."""
        reference = events.reference(api_resources.PODS, pod)
        self.recorder.emit(reference, events.WARNING, reason, message)

    def report_waiting(
        self, pod: pod_types.Pod, state: pod_state.PodState, name: str, error: errors.InputsNotReady
    ) -> None:
        """Report once that a container waits for something."""
        message = str(error)
        if message != state.view(name).message:
            self.warn(pod, "Failed", f"Error: {message}")
        state.change(name, reason=error.reason, message=message)

    def report_refused(self, pod: pod_types.Pod, state: pod_state.PodState, message: str) -> None:
        """Report once that the Pod can never run here."""
        if message != state.refusal:
            self.warn(pod, statuses.UNSUPPORTED, message)
        state.refusal = message

    def report_cannot_start(
        self,
        pod: pod_types.Pod,
        state: pod_state.PodState,
        wanted: pod_types.Container,
        error: errors.Unsupported,
    ) -> None:
        """Report that a container can never run here.

        Its Pod is refused too. An ephemeral container only waits, and its Pod goes on.
        """
        if isinstance(wanted, pod_types.EphemeralContainer):
            self.report_waiting(pod, state, wanted.name, errors.InputsNotReady(str(error)))
            state.change(wanted.name, start_at=math.inf)
        else:
            self.report_refused(pod, state, str(error))

    def report_ignored(self, pod: pod_types.Pod, state: pod_state.PodState) -> None:
        """Report once which fields of the Pod have no effect here."""
        if not state.ignored_reported and (message := statuses.ignored_message(pod)):
            self.warn(pod, "FieldsIgnored", message)
        state.ignored_reported = True

    def report_ignored_of(
        self, pod: pod_types.Pod, container: pod_types.EphemeralContainer
    ) -> None:
        """Report which fields of an ephemeral container have no effect here."""
        if message := statuses.sentences(container_plan.ignored_of(pod, container)):
            self.warn(pod, "FieldsIgnored", message)

    async def write_status(
        self, pod: pod_types.Pod, state: pod_state.PodState, *, leaving: bool
    ) -> float | None:
        """Patch the status if it has to change. Return the seconds until the next check, or None.

        A list in a merge patch replaces the whole list. The resourceVersion in the patch makes sure
        that no condition is lost that another client has written meanwhile. After such a conflict
        the watch brings the new object, and the status is written again.
        """
        new_status = self._status(pod, state, leaving=leaving)
        if new_status is None:
            return None
        old_status = pod.status if state.written is None else state.written
        changed = {f: value for f, value in new_status.items() if old_status.get(f) != value}
        if not changed:
            return None
        now = self.now.monotonic()
        hold_s = _hold_s(pod, old_status, changed)
        if hold_s and (state.write_at is None or now < state.write_at):
            state.write_at = now + hold_s if state.write_at is None else state.write_at
            return state.write_at - now
        state.write_at = None
        try:
            if changed.keys() == {statuses.EPHEMERAL}:
                await self._write_ephemeral(pod, old_status, changed)
            else:
                await self._write_all(pod, state, new_status)
        except (kube_errors.NotFound, kube_errors.Conflict):
            return None  # deleted, changed or replaced by another Pod: the watch will report it
        state.written = new_status
        return None

    async def _write_all(
        self, pod: pod_types.Pod, state: pod_state.PodState, wanted: dict[str, Any]
    ) -> None:
        m = pod.metadata
        # The cache may lag behind our own last write.
        version = state.version if state.seen == m.resource_version else m.resource_version
        patch = {"metadata": {"uid": m.uid, "resourceVersion": version}, "status": wanted}
        response = await self.kube.merge_patch(
            api_resources.PODS, m.name, patch, m.namespace, subresource="status"
        )
        state.seen, state.version = m.resource_version, str(response["metadata"]["resourceVersion"])

    async def _write_ephemeral(
        self, pod: pod_types.Pod, known: Mapping[str, Any], changed: dict[str, Any]
    ) -> None:
        """Write only the changed entries of the ephemeral containers, as a Pod may have hundreds.

        No other client writes this list, so no resourceVersion is sent: each added container would
        make it outdated.
        """
        m = pod.metadata
        path = f"{api_resources.PODS.base(m.namespace)}/{m.name}/status"
        body = msgspec.json.encode(statuses.ephemeral_patch(m.uid, known, changed))
        try:  # the response, the whole Pod, is not decoded
            await self.kube.raw("PATCH", path, body=body, content_type=http_types.JSON_PATCH)
        except kube_errors.Invalid:  # a `test` failed: another writer, or another Pod
            patch = {"metadata": {"uid": m.uid}, "status": changed}
            await self.kube.merge_patch(
                api_resources.PODS, m.name, patch, m.namespace, subresource="status"
            )

    def _status(
        self, pod: pod_types.Pod, state: pod_state.PodState, *, leaving: bool
    ) -> dict[str, Any] | None:
        """Return the status to write, or None if there is nothing to report now."""
        begun = any(view.last is not None for view in state.views.values())
        if pod.final and (not begun or state.refusal):
            return None
        if not begun and pod.metadata.deletion_timestamp is not None:
            # A client whose finalizer keeps the object must see that the Pod will never run
            # (kubelet, getPhase of a terminal Pod).
            return {"phase": "Failed"} if pod.metadata.finalizers else None
        facts = statuses.PodFacts(self.address, self.now.wall(), state.written, leaving)
        if leaving and begun and not pod_decisions.only_sidecars_left(pod, state.views):
            # The next process on this directory continues the Pod, so the Pod must not be reported
            # as ended. But a worker must be notified of the end of its ephemeral containers.
            if not pod.ephemeral_containers:
                return None
            ended = statuses.status(pod, state.views, facts)[statuses.EPHEMERAL]
            old_status = pod.status if state.written is None else state.written
            return {**old_status, statuses.EPHEMERAL: ended}
        if state.refusal:
            return statuses.refused(pod, state.refusal)
        return statuses.status(pod, state.views, facts)

    async def remove(self, pod: pod_types.Pod) -> None:
        """Delete the Pod object without a grace period, since none of its containers is left."""
        m = pod.metadata
        try:
            # The uid protects a new Pod of this name. Grace 0 confirms the end, as by a kubelet.
            await self.kube.delete(api_resources.PODS, m.name, m.namespace, uid=m.uid, grace_s=0)
        except (kube_errors.NotFound, kube_errors.Conflict):
            return


def _hold_s(pod: pod_types.Pod, known: Mapping[str, Any], changed: Mapping[str, Any]) -> float:
    """Return the seconds that a change may wait before it is written."""
    if changed.keys() == {statuses.EPHEMERAL}:
        return STARTED_S if statuses.only_started(known, changed) else 0.0
    ends = changed.get("phase") in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp
    return 0.0 if ends or not any(c.sidecar for c in pod.init_containers) else SIDECAR_S
