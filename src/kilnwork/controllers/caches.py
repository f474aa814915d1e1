"""The caches of the controllers: one for each kind, filled from the API server by reflectors.

Reconcilers and the token verifier read from the caches and never list objects themselves. Secrets
and Pods are only those that kilnwork created (by label).
"""

import msgspec

from kilnwork.api import (
    data_pond,
    job,
    job_config,
    meta,
    node,
    pod,
    sync_set,
    task,
    task_claim,
    task_cluster,
    task_object,
)
from kilnwork.kube import cache


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a core/v1 Secret that are used here; values are base64."""

    metadata: meta.ObjectMeta
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Caches(msgspec.Struct, frozen=True):
    """One cache for each kind."""

    tasks: cache.Cache[task.Task] = msgspec.field(default_factory=cache.Cache)
    objects: cache.Cache[task_object.TaskObject] = msgspec.field(default_factory=cache.Cache)
    clusters: cache.Cache[task_cluster.TaskCluster] = msgspec.field(default_factory=cache.Cache)
    claims: cache.Cache[task_claim.TaskClaim] = msgspec.field(default_factory=cache.Cache)
    jobs: cache.Cache[job.Job] = msgspec.field(default_factory=cache.Cache)
    job_configs: cache.Cache[job_config.JobConfig] = msgspec.field(default_factory=cache.Cache)
    sync_sets: cache.Cache[sync_set.SyncSet] = msgspec.field(default_factory=cache.Cache)
    ponds: cache.Cache[data_pond.DataPond] = msgspec.field(default_factory=cache.Cache)
    pods: cache.Cache[pod.Pod] = msgspec.field(default_factory=cache.Cache)
    secrets: cache.Cache[Secret] = msgspec.field(default_factory=cache.Cache)
    accounts: cache.Cache[meta.Partial] = msgspec.field(default_factory=cache.Cache)
    nodes: cache.Cache[node.Node] = msgspec.field(default_factory=cache.Cache)
    namespaces: cache.Cache[meta.Partial] = msgspec.field(default_factory=cache.Cache)
