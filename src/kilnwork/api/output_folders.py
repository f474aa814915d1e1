"""Where the files of a SyncSet's outputs are on a node: each attempt has a directory of its own.

Used by workers, which make it, by `kiln.outputs()`, and by the SyncSet controller, which knows the
attempts that count and has their files pinned.
"""

VARIABLE = "KILN_OUTPUTS"
"""Environment variable: of a worker, the directory with those of all attempts; of a command, its
own."""


def name(task_id: str, *, run: int, attempt: int) -> str:
    """Return the name of an attempt's directory."""
    return f"{task_id}.{run}.{attempt}"
