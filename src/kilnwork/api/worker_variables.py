"""Environment variables of the workers of a SyncSet.

Used by the SyncSet controller, which sets them, by workers, and by task functions (`kilnwork.sdk`).
What every worker has is in `controllers.worker_pods`.
"""

OUTPUTS = "KILN_OUTPUTS"
"""Directory for the files of a set's outputs: of a worker, with those of all attempts; of a
command, its own."""

SPAWN_CLUSTER = "KILN_SPAWN_CLUSTER"
"""TaskCluster on which runs what a task on this worker spawns without naming one; without it, that
of the worker."""


def output_directory(task_id: str, *, run: int, attempt: int) -> str:
    """Return the name of an attempt's directory among the outputs of a run."""
    return f"{task_id}.{run}.{attempt}"
