"""The variables that templates of Jobs have in addition to those of every task, by name.

Used by `job_validation`, which refuses unknown variables, and by the code that provides their
values. `substitution` replaces them.
"""

from collections.abc import Iterable

from kilnwork.api import job, substitution

JOB = {
    "job.name": "Name of the Job.",
    "job.namespace": "Its namespace.",
    "job.uid": "Its `metadata.uid`.",
    "job.type": "`Adhoc` or `Scheduled`.",
    "job.max_attempts": "How often an index is tried.",
    "job.run": "Number of its run, from 1.",
    "job.scheduled_time": "Tick of the schedule that made it (RFC 3339, UTC), else empty.",
}
"""Variables of every Job, in all of its templates."""

JOB_CONFIG = {
    "jobconfig.name": "Name of the JobConfig that the Job is of.",
    "jobconfig.namespace": "Its namespace.",
    "jobconfig.uid": "Its `metadata.uid`.",
}
"""Variables of a Job that a JobConfig owns, in all of its templates."""

RESULTS_INPUT = "results"
"""Input of a finalizer: the results of the indexes, in order."""

HOOK = {"job.phase": "The phase that the hook follows."}
"""Variables of the templates of hooks, in addition to those above."""

OPTION_PREFIX = "option."
"""Prefix of the variables for options; the name of the option follows."""

INDEX_NUM = "task.index_num"
INDEX_KEY = "task.index_key"
INDEX_ITEM = "task.index_item"
INDEX_MATRIX_PREFIX = "task.index_matrix."

TASK_NAME = "task.name"
CLUSTER_NAME = "task.cluster_name"

EARLY = (TASK_NAME, "task.namespace", CLUSTER_NAME)
"""Variables of every task that are known when an index gets its task. Others are known only when
an attempt starts: a command or a call is final by then and cannot use them."""

INSTEAD_IN_COMMANDS = {
    "task.attempt": "the environment variable KILN_ATTEMPT has it",
    "task.retry_index": "the environment variable KILN_ATTEMPT is greater by one",
    "task.run": "the environment variable KILN_RUN has it",
    "task.id": "the environment variable KILN_TASK_ID has it",
}
"""Alternatives in a command for variables that are not EARLY."""

INSTEAD_IN_CALLS = {
    "task.attempt": "kiln.context().attempt has it",
    "task.retry_index": "kiln.context().attempt is greater by one",
    "task.run": "kiln.context().run has it",
    "task.id": "kiln.context().task_id has it",
}
"""Alternatives in a function for variables that are not EARLY."""


def of_index(parallelism: job.Parallelism | None) -> dict[str, str]:
    """Return the variables of each index, with their descriptions."""
    found = {INDEX_NUM: "Number of the index, from 0."}
    if parallelism is None:
        return found
    if parallelism.with_keys is not None:
        found[INDEX_KEY] = "The key of the index."
    if parallelism.with_result_of is not None:
        found[INDEX_ITEM] = "The item of the index, any JSON."
    for key in parallelism.with_matrix or ():
        found[f"{INDEX_MATRIX_PREFIX}{key}"] = f"The value of `{key}` of the index."
    return found


def of_options(names: Iterable[str]) -> list[str]:
    """Return the names of the variables for options with these names."""
    return [f"{OPTION_PREFIX}{name}" for name in names]


def is_variable(name: str) -> bool:
    """Return whether a name is a valid variable name, as in `spec.substitutions`."""
    return name.startswith(substitution.PREFIXES) and not set(name) & set("${}")
