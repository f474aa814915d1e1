"""The CustomResourceDefinition of SyncSet: its rules and columns.

Used by `crd`. The CEL rules are for the real API server and stay within its cost limits;
`sync_set_validation` has the same rules, and further ones, in Python, with texts from here.
"""

from collections.abc import Iterator

from kilnwork.api import crd_parts, meta, sync_set

MAX_NAMES = 50
"""Maximum length of the names of a set and a group together: a Pod is named
`<set>-g9999-<group>-99999`, and a host name has at most 63 characters."""

GENERATION_RULE = "may only rise"
RUN_RULE = "may only rise within a generation"
FROZEN = (
    "cannot be changed within a generation: raise spec.generation, which starts a new one; "
    "run, suspend, deadlineSeconds, keep, killTimestamp, the replicas of elastic groups, and "
    "priority before the flow has begun can be changed"
)
NAMES_RULE = (
    f"the names of the SyncSet and of each group may have {MAX_NAMES} characters together: "
    "<set>-g9999-<group>-99999 is the name of a Pod, of at most 63"
)
NAME_RULE = "metadata.name must be a DNS label: it is part of the names of Pods"
CONTROLLER_RULE = (
    "no group may be called controller beside resources.controller, which is a group of that name"
)
RESTART_RULE = (
    "restart-group is not served: no worker depends on another, and only the tasks of the one that "
    "ended run again; write replace, or fail, after which `kiln replay` starts the whole set again"
)
REPLICAS_RULE = "give either replicas or replicasOf"
MIN_RULE = "min may not be more than replicas"
ELASTIC_RULE = "replicas may not be more than elastic.max"
NEAR_RULE = "nearMode required needs a snapshot in near"
SHARD_RULE = "give either count or group"
REPLAY_RULE = "must be an earlier generation than replay.generation"

_SAME_GENERATION = "self.generation == oldSelf.generation"


def _unchanged(field: str) -> str:
    """Return the CEL expression that is true if a field is unchanged."""
    now, before = f"self.{field}", f"oldSelf.{field}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


_GROUP_FIELDS = (
    "elastic", "min", "near", "nearMode", "onPodFailed", "replicasOf", "serviceAccountName",
    "slotsPerWorker",
)  # fmt: skip


def _group_unchanged(field: str) -> str:
    """Return the CEL expression that a field of group `g` equals that of the old group `o`."""
    return f"has(o.{field}) == has(g.{field}) && (!has(g.{field}) || o.{field} == g.{field})"


def _frozen() -> Iterator[meta.JsonObject]:
    """Yield the rules that make a spec immutable within a generation.

    CEL cannot compare fields without a type: templates, manifests, parameters and parts of the
    flow. The controller uses the stored values for a running generation.
    """
    for field in ("backend", "data", "flow"):
        rule = f"self.generation != oldSelf.generation || ({_unchanged(field)})"
        yield crd_parts.rule(rule, f"{field} {FROZEN}", fieldPath=f".{field}")
    replay = "!has(self.replay) || has(oldSelf.replay) && self.replay == oldSelf.replay"
    rule = f"self.generation != oldSelf.generation || {replay}"
    yield crd_parts.rule(rule, f"replay {FROZEN}", fieldPath=".replay")
    gang = f"self.generation != oldSelf.generation || ({_unchanged('resources.gang')})"
    yield crd_parts.rule(gang, f"resources.gang {FROZEN}", fieldPath=".resources.gang")
    unchanged = " && ".join(map(_group_unchanged, _GROUP_FIELDS))
    groups = (
        "self.generation != oldSelf.generation || "
        "(self.resources.groups.size() == oldSelf.resources.groups.size() && "
        "self.resources.groups.all(g, oldSelf.resources.groups.exists(o, o.name == g.name && "
        f"(has(g.elastic) || ({_group_unchanged('replicas')})) && {unchanged}"
        ")))"
    )
    yield crd_parts.rule(groups, f"resources.groups {FROZEN}", fieldPath=".resources.groups")


SYNC_SET = crd_parts.KindDefinition(
    description=sync_set.SyncSet.__doc__ or "",
    spec=sync_set.SyncSetSpec,
    needs_spec=True,
    status=sync_set.SyncSetStatus,
    columns=(
        crd_parts.column("Phase", ".status.phase"),
        crd_parts.column(
            "Generation",
            ".status.generation",
            type_="integer",
            about="Number of the newest generation.",
        ),
        crd_parts.column("Data", ".status.dataReady", about="Nodes that hold their data."),
        crd_parts.column("Gang", ".status.gang", about="Workers that are connected."),
        crd_parts.column("Progress", ".status.progress", about="Tasks of the flow that succeeded."),
        crd_parts.column("Reason", ".status.reason", wide=True, about="Reason for the phase."),
        crd_parts.column(
            "Backend",
            ".status.backendRef.backend",
            wide=True,
            about="Backend that starts the groups.",
        ),
        crd_parts.column("Finished", ".status.finishTime", type_="date", wide=True),
        crd_parts.AGE,
    ),
    selectable=(".status.phase",),
    additions={
        "": crd_parts.rules(
            crd_parts.rule(
                "self.spec.resources.groups.all(g, "
                f"self.metadata.name.size() + g.name.size() <= {MAX_NAMES})",
                NAMES_RULE,
            ),
            crd_parts.rule(
                "(has(self.spec.priority) ? self.spec.priority : 0) "
                "== (has(oldSelf.spec.priority) ? oldSelf.spec.priority : 0) "
                "|| self.spec.generation != oldSelf.spec.generation || !has(oldSelf.status) "
                "|| !has(oldSelf.status.startTime) || !has(oldSelf.status.generation) "
                "|| oldSelf.status.generation != oldSelf.spec.generation",
                f"priority {FROZEN}",
                fieldPath=".spec.priority",
            ),
            crd_parts.rule(
                "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", NAME_RULE
            ),
        ),
        "spec": crd_parts.rules(
            crd_parts.rule(
                "self.generation >= oldSelf.generation",
                f"generation {GENERATION_RULE}",
                fieldPath=".generation",
            ),
            crd_parts.rule(
                f"!({_SAME_GENERATION}) || "
                "(has(self.run) ? self.run : 1) >= (has(oldSelf.run) ? oldSelf.run : 1)",
                f"run {RUN_RULE}",
                fieldPath=".run",
            ),
            crd_parts.rule(
                "!has(self.replay) || self.replay.of < self.replay.generation",
                f"replay.of {REPLAY_RULE}",
                fieldPath=".replay",
            ),
            *_frozen(),
        ),
        "spec.resources": crd_parts.rules(
            crd_parts.rule(
                "!has(self.controller) || self.groups.all(g, g.name != 'controller')",
                CONTROLLER_RULE,
                fieldPath=".groups",
            )
        ),
        "spec.resources.groups": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "spec.resources.groups.[]": crd_parts.rules(
            crd_parts.rule("!has(self.replicas) || !has(self.replicasOf)", REPLICAS_RULE),
            crd_parts.rule(
                "!has(self.onPodFailed) || self.onPodFailed != 'restart-group'",
                RESTART_RULE,
                fieldPath=".onPodFailed",
            ),
            crd_parts.rule(
                "!has(self.min) || has(self.replicasOf) "
                "|| self.min <= (has(self.replicas) ? self.replicas : 1)",
                MIN_RULE,
                fieldPath=".min",
            ),
            crd_parts.rule(
                "!has(self.elastic) || !has(self.replicas) || self.replicas <= self.elastic.max",
                ELASTIC_RULE,
            ),
            crd_parts.rule(
                "self.nearMode != 'required' || (has(self.near) && self.near.size() > 0)",
                NEAR_RULE,
            ),
        ),
        "spec.resources.groups.[].near": {"maxItems": sync_set.MAX_SNAPSHOTS},
        "spec.data.snapshots": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "spec.data.outputs": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "spec.data.snapshots.[].shard": crd_parts.rules(
            crd_parts.rule("!has(self.count) || !has(self.group)", SHARD_RULE)
        ),
        "spec.killTimestamp": crd_parts.TIME,
        "status.admissionTime": crd_parts.TIME,
        "status.startTime": crd_parts.TIME,
        "status.finishTime": crd_parts.TIME,
        "status.conditions": crd_parts.CONDITIONS,
    },
)
