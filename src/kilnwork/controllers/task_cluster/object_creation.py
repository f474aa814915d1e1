"""Creation and update of the Secret and the Pods of a TaskCluster, and the reasons of refusals.

Used by `reconciler`. A name taken by an object of a deleted cluster becomes free after a while; a
name taken by another owner must be freed by a user.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kilnwork.api import api_resources, kinds, meta, pod, reasons, task_cluster
from kilnwork.controllers.task_cluster import status
from kilnwork.kit import clock
from kilnwork.kube import client, errors

Reason = reasons.ClusterReason

SOON_S = 0.25
"""Seconds until the next try after a name was taken by an object that is being deleted."""

LATER_S = 1.0
"""Seconds until the next try after a refusal, whose cause may be in objects that are not
watched."""


class Creation(NamedTuple):
    """The result of creating an object: the object, or None with the reason of the refusal, if
    known, and the seconds until the next try.
    """

    body: meta.JsonObject | None = None
    refusal: status.CreationRefusal | None = None
    again_s: float | None = None


async def create(
    kube: client.Client,
    kind: api_resources.Resource,
    body: meta.JsonObject,
    *,
    cluster: task_cluster.TaskCluster,
) -> Creation:
    try:
        return Creation(await kube.create(kind, body, cluster.metadata.namespace))
    except errors.AlreadyExists:
        return await _check_name_owner(kube, kind, body["metadata"]["name"], cluster=cluster)
    except (errors.Forbidden, errors.Invalid) as error:
        return Creation(
            None, status.CreationRefusal(_classify_refusal(error), error.message), LATER_S
        )


async def dry_run(
    kube: client.Client, body: meta.JsonObject, *, cluster: task_cluster.TaskCluster
) -> status.CreationRefusal | None:
    """Return why the API server would refuse a Pod, except for a quota that existing Pods use up;
    None if it would not.
    """
    try:
        await kube.create(api_resources.PODS, body, cluster.metadata.namespace, dry_run=True)
    except errors.AlreadyExists:
        return None
    except (errors.Forbidden, errors.Invalid) as error:
        reason = _classify_refusal(error)
        return (
            None
            if reason is Reason.QUOTA_EXCEEDED
            else status.CreationRefusal(reason, error.message)
        )
    return None


async def update_secret(
    kube: client.Client, name: str, data: dict[str, str], *, cluster: task_cluster.TaskCluster
) -> None:
    """Change some entries of a Secret; if it was deleted, the next pass creates it again."""
    try:
        await kube.merge_patch(
            api_resources.SECRETS, name, {"data": data}, cluster.metadata.namespace
        )
    except errors.NotFound:
        return


async def _check_name_owner(
    kube: client.Client,
    kind: api_resources.Resource,
    name: str,
    *,
    cluster: task_cluster.TaskCluster,
) -> Creation:
    try:
        found = await kube.get(kind, name, cluster.metadata.namespace, type=meta.Partial)
    except errors.NotFound:
        return Creation(again_s=SOON_S)
    owner = found.metadata.controller()
    if owner is not None and owner.uid == cluster.metadata.uid:
        return Creation(again_s=SOON_S)  # ours: the cache does not have it yet
    ours_before = owner is not None and (owner.kind, owner.name) == (
        kinds.TASK_CLUSTERS.kind,
        cluster.metadata.name,
    )
    if ours_before or found.metadata.deletion_timestamp is not None:
        return Creation(again_s=SOON_S)
    reason = Reason.POD_NAME_TAKEN if kind is api_resources.PODS else Reason.SECRET_NAME_TAKEN
    message = f"{kind.kind} {name} exists and does not belong to this TaskCluster"
    return Creation(None, status.CreationRefusal(reason, message), LATER_S)


def _classify_refusal(error: errors.ApiError) -> reasons.ClusterReason:
    """Return the reason for which the API server has refused an object.

    Admission of ServiceAccounts and quotas responds with 403 and gives the cause only in the text
    (kubernetes plugin/pkg/admission/serviceaccount, staging/src/k8s.io/apiserver/pkg/admission/
    plugin/resourcequota/controller.go).
    """
    if isinstance(error, errors.Forbidden) and "serviceaccount" in error.message:
        return Reason.SERVICE_ACCOUNT_MISSING
    if isinstance(error, errors.Forbidden) and "exceeded quota" in error.message:
        return Reason.QUOTA_EXCEEDED
    if any(c.get("reason") == "NamespaceTerminating" for c in error.details.get("causes") or ()):
        return Reason.NAMESPACE_ENDING
    return Reason.POD_REFUSED


PATIENCE_S = 30.0
"""Seconds after which a Pod that the watch has not delivered counts as deleted: it was created
and deleted while the watch was interrupted."""


class ExpectedPods:
    """Register of created Pods that the cache does not have yet, by uid.

    Without them, a pass before the watch delivers a new Pod would consider its place empty and
    create another one.
    """

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._made: dict[str, tuple[str, pod.Pod, float]] = {}

    def add(self, owner_uid: str, made: pod.Pod) -> None:
        """Add a Pod that was just created at the API server."""
        due = self._clock.monotonic() + PATIENCE_S
        self._made[made.metadata.uid] = (owner_uid, made, due)

    def forget(self, uid: str) -> None:
        self._made.pop(uid, None)

    def merge_with(self, owner_uid: str, known: Iterable[pod.Pod]) -> list[pod.Pod]:
        """Return the Pods of one owner: those in the cache, and those that were created and will
        appear in the cache.
        """
        pods = list(known)
        names = {p.metadata.name for p in pods}
        now = self._clock.monotonic()
        self._made = {uid: expected for uid, expected in self._made.items() if expected[2] > now}
        for owner, made, _ in self._made.values():
            if owner == owner_uid and made.metadata.name not in names:
                pods.append(made)
        return pods
