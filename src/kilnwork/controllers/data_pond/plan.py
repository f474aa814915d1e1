"""The plan for one DataPond: the Secret and the Pods to create and to delete.

No I/O. Used by `reconciler`, which gathers `Facts` and carries out the `Plan`.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from kilnwork.api import (
    data_pond,
    data_pond_validation,
    meta,
    node,
    pod,
    pond_certificate_names,
    reasons,
)
from kilnwork.controllers import caches, worker_pods
from kilnwork.controllers.data_pond import (
    deletion_decision,
    pods,
    pond_state,
    status,
    tls_certificate,
)
from kilnwork.kit import clock

YOUNG_S = 5.0
"""Age in seconds below which a failed Pod counts as refused by its node: the next one would
fail, too."""

Reason = reasons.PondReason

_NOT_INSTALLED = (
    "the manager may not read Nodes, so it makes no agents: apply what `kiln install --ponds` "
    "prints, with the other options of before"
)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one DataPond."""

    pond: data_pond.DataPond
    others: Sequence[data_pond.DataPond] = ()
    """All DataPonds of the served namespaces, including `pond` itself."""
    nodes: Sequence[node.Node] = ()
    pods: Sequence[pod.Pod] = ()
    """The Pods that the DataPond controls."""
    secret: caches.Secret | None = None
    """The Secret that the DataPond controls."""
    refusal: tuple[reasons.PondReason, str] | None = None
    """Why the last Pod or Secret was not created."""
    known: pond_state.PondState | None = None
    """State of the pond in the ledger."""
    now: float = 0.0
    """Wall clock, in seconds."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one DataPond; repeating them changes nothing."""

    make_secret: bool = False
    mend_secret: Mapping[str, str] = {}
    """Entries of the Secret that must be changed."""
    new_pair: bool = False
    """Whether the certificate in the Secret must be replaced."""
    remove: tuple[tuple[pod.Pod, str], ...] = ()
    """Pods to delete, with the reason."""
    create: tuple[meta.JsonObject, ...] = ()
    nodes: frozenset[str] = frozenset()
    hold: bool = False
    """Whether the finalizer must be set."""
    end: deletion_decision.Deletion | None = None
    """The state of the deletion, if the DataPond is being deleted."""
    status: data_pond.DataPondStatus
    again_s: float | None = None
    """Seconds until the next pass."""


def decide(facts: Facts, settings: pods.PondPodSettings) -> Plan:
    """Decide the actions to take now for a DataPond."""
    pond = facts.pond
    wanted = tuple(sorted(one.metadata.name for one in facts.nodes if _is_wanted(pond.spec, one)))
    problems = data_pond_validation.problems(pond)
    why = facts.refusal if settings.sees_nodes else (Reason.NOT_INSTALLED, _NOT_INSTALLED)
    conflict = _directory_conflict(facts, wanted, settings)
    if problems:
        why = Reason.INVALID_SPEC, "; ".join(f"{field} {what}" for field, what in problems)
    elif conflict:
        why = Reason.POND_UNUSABLE, conflict
    end = None
    if deletion_decision.is_being_deleted(pond):
        refused = facts.refusal is not None or bool(problems) or not settings.sees_nodes
        end = deletion_decision.decide(facts.known, facts.pods, refused=refused, now=facts.now)
        why = end.reason, end.message
    shown = status.make(pond, wanted, facts.known, why=why, pods=facts.pods, now=facts.now)
    base = Plan(
        nodes=frozenset(wanted),
        hold=not deletion_decision.has_finalizer(pond) and deletion_decision.has_data(facts.known),
        end=end,
        again_s=None if end is None else end.again_s,
        status=shown,
    )
    if problems or conflict:
        return base  # the Pods of the previous spec continue
    if facts.secret is None:
        return msgspec.structs.replace(base, make_secret=True)
    ca = pods.ca_data(settings)
    mend = {key: value for key, value in ca.items() if facts.secret.data.get(key) != value}
    bodies = {
        name: pods.make_pod(pond, settings, node=name, secret_version=_version(facts.secret))
        for name in wanted
    }
    removed = tuple(
        (one, text) for one in facts.pods if (text := _deletion_reason(one, bodies, now=facts.now))
    )
    existing = {one.metadata.name for one in facts.pods}
    return msgspec.structs.replace(
        base,
        mend_secret=mend,
        new_pair=_certificate_expires(facts.secret, now=facts.now),
        remove=removed,
        create=tuple(b for b in bodies.values() if b["metadata"]["name"] not in existing),
        again_s=YOUNG_S if any(one.is_finished for one in facts.pods) else base.again_s,
    )


def _directory_conflict(facts: Facts, wanted: Sequence[str], settings: pods.PondPodSettings) -> str:
    """Return why the pond cannot use its directory, or "" if it can.

    It cannot if an older pond uses the same directory, or a parent or child of it, on a node of
    both ponds.
    """
    own = PurePosixPath(pods.data_directory(facts.pond, settings))
    for other in facts.others:
        if _age_key(other) >= _age_key(facts.pond):
            continue
        other_directory = PurePosixPath(pods.data_directory(other, settings))
        if not (own.is_relative_to(other_directory) or other_directory.is_relative_to(own)):
            continue
        nodes = {one.metadata.name for one in facts.nodes if _is_wanted(other.spec, one)}
        if shared := sorted(nodes.intersection(wanted)):
            name = f"{other.metadata.namespace}/{other.metadata.name}"
            return (
                f"spec.path: {own} is in the way of {other_directory} of DataPond {name} on node "
                f"{shared[0]}: give each pond a path of its own"
            )
    return ""


def _age_key(pond: data_pond.DataPond) -> tuple[str, str, str]:
    """Return a sort key of a pond by its age; ties within a second are always broken in the same
    way.
    """
    metadata = pond.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name


def _is_wanted(spec: data_pond.DataPondSpec, one: node.Node) -> bool:
    """Return whether a node should have an agent: it is selected, and has only taints that the Pods
    of a DaemonSet tolerate.
    """
    labels = one.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    return all(
        taint.effect == "PreferNoSchedule" or taint.key in pods.TOLERATED
        for taint in one.spec.taints
    )


def _deletion_reason(seen: pod.Pod, bodies: Mapping[str, meta.JsonObject], *, now: float) -> str:
    """Return why a Pod of an agent must be deleted, or "" to keep it."""
    if seen.terminating:
        return ""
    body = bodies.get(seen.spec.node_name or "")
    if body is None:
        return "its node is not selected, or gone"
    if seen.metadata.annotations.get(worker_pods.TEMPLATE_ANNOTATION) != pods.digest_of(body):
        return "it is made of an older spec"
    created = seen.metadata.creation_timestamp
    age_s = now - clock.parse_rfc3339(created) if created else YOUNG_S
    return "it has ended" if seen.is_finished and age_s >= YOUNG_S else ""


def _version(secret: caches.Secret) -> str:
    """Return a digest of those entries of the Secret that agents read only at their start."""
    keys = (pond_certificate_names.CERTIFICATE_KEY, pond_certificate_names.CA_KEY)
    content = "\0".join(secret.data.get(key, "") for key in keys)
    return hashlib.sha256(f"{secret.metadata.uid}\0{content}".encode()).hexdigest()


def _certificate_expires(secret: caches.Secret, *, now: float) -> bool:
    try:
        pem = base64.b64decode(secret.data.get(pond_certificate_names.CERTIFICATE_KEY, ""))
    except binascii.Error:
        return True
    return tls_certificate.needs_renewal(pem, now=now)
