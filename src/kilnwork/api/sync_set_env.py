"""Environment variables of the workers of a SyncSet.

Used by the SyncSet controller, which sets them, by workers, and by task functions
(`kilnwork.sdk`). The variables of all workers are in `controllers.worker_pods`.
"""

OUTPUTS = "KILN_OUTPUTS"
"""Directory for the files of a SyncSet's outputs: for a worker, with the files of all attempts;
for a command, its own."""

SPAWN_CLUSTER = "KILN_SPAWN_CLUSTER"
"""Name of the TaskCluster for tasks spawned on this worker without a cluster name; if unset,
that of the worker."""


def output_directory(task_id: str, *, run: int, attempt: int) -> str:
    """Return the name of an attempt's directory among the outputs of a run."""
    return f"{task_id}.{run}.{attempt}"
