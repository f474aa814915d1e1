"""The JobConfig of a decorated job: the settings of `@kiln.job(…)` and the object built from them.

Used by `job_functions` and by `kiln deploy`. JobSettings are mapped to fields of a JobConfig;
errors name the field, as those of the server do. No I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

import msgspec

from kilnwork.api import job_config, job_validation, names
from kilnwork.api import task as api_task
from kilnwork.sdk import errors, job_parameters, job_runs

DEPLOYED_FROM = "kilnwork.dev/deployed-from"
"""Label of a JobConfig: the module in which `kiln deploy` found the job."""

DESCRIPTION = "kilnwork.dev/description"
"""Annotation of a JobConfig: the first line of the docstring of its function."""

Parallel = int | Sequence[str] | Mapping[str, Sequence[str]]
"""An index set: the number of indexes, a key for each index, or the values of each key of a
matrix."""


class NamedJob(Protocol):
    """A job that has a name: a declared or a deployed job."""

    name: str


ResultOf = NamedJob | Mapping[str, str]
"""Source of a list with an index for each item: a job that returns the list, or a mapping as in a
JobConfig."""


class JobSettings(TypedDict, total=False):
    """The settings of `@kiln.job(…)`. Times are in seconds.

    `name`: the name of the JobConfig; by default the name of the function in lower case, with
    dashes instead of underscores. `schedule`: a cron expression, or several, in the time zone
    `timezone`; None: the job runs on request only. `daylight_saving`, `missed_runs`: the fields
    `daylightSaving` and `missedRuns` of `spec.schedule`; `missed_runs` may be a policy alone.

    `concurrency`: the policy for a Job that is due while others of the JobConfig run;
    `max_concurrency`, `max_queued`: the maximum numbers of running and of waiting Jobs. `priority`:
    the priority of its Jobs. `locks`: the locks that its Jobs hold, as names, or names with modes.
    `ttl`: the time until a finished Job is deleted.

    `retries`: the number of further attempts of an index, with `retry_delay`, `retry_factor`,
    `retry_max_delay` and `max_losses` as for `kiln.task`. `timeout`: the time limit of one attempt.
    `pending_timeout`: the time limit until the first start of an index. `job_timeout`: the time
    limit of the whole Job. `kill_grace`: the time between Cancelled and SIGKILL. `cluster`, `pod`:
    the TaskCluster or the Pod template for its tasks, as for `kiln.task`.

    `depends_on`: jobs that must end before a Job starts: jobs or their names, each of which refers
    to its Job of the same tick or its newest Job, or items as in `spec.dependsOn`. `hooks`: tasks
    that run after a change of the Job's phase: a mapping from `Running`, `Succeeded`, `Failed` or
    `Killed`, or a tuple of these phases, to functions or templates such as `kiln.http(…)`, which
    may have the parameters `job` and `phase`.

    `max_in_flight`: the maximum number of indexes that run at once. `completion`: the rule that
    decides when a parallel Job has succeeded or failed. `finalizer`: a function that gets the list
    `results` of all indexes.
    """

    name: str
    schedule: str | Sequence[str] | None
    timezone: str
    daylight_saving: Mapping[str, str]
    missed_runs: str | Mapping[str, Any]
    concurrency: Literal["Allow", "Forbid", "Enqueue", "Replace"]
    max_concurrency: int
    max_queued: int
    priority: int
    locks: Sequence[str] | Mapping[str, str]
    depends_on: Sequence[Any] | NamedJob
    hooks: Mapping[Any, Callable[..., Any]]
    ttl: int
    retries: int
    retry_delay: float
    retry_factor: float
    retry_max_delay: float
    max_losses: int
    timeout: float
    pending_timeout: float
    job_timeout: float
    kill_grace: float
    cluster: str
    pod: Mapping[str, Any]
    max_in_flight: int
    completion: str | Mapping[str, Any]
    finalizer: Callable[..., Any]


KNOWN = (*JobSettings.__annotations__, "parallel", "with_result_of")
"""The names of all settings."""

_RETRY = {
    "retry_delay": "delaySeconds",
    "retry_factor": "factor",
    "retry_max_delay": "maxDelaySeconds",
    "max_losses": "maxLosses",
}
_TIMEOUTS = {
    "timeout": "runningSeconds",
    "pending_timeout": "pendingSeconds",
    "job_timeout": "jobSeconds",
    "kill_grace": "killGraceSeconds",
}
_CONCURRENCY = {"max_concurrency": "maxConcurrency", "max_queued": "maxQueued"}
_PARALLEL = {"max_in_flight": "maxInFlight", "completion": "completionStrategy"}
_SCHEDULE = ("timezone", "daylight_saving", "missed_runs")


def check_names(given: Mapping[str, Any], of: str) -> None:
    """Raise BadOption for an unknown setting, or if settings lack or exclude each other.

    `of`: the place of the job, for error messages.
    """
    for name in given:
        if name not in KNOWN:
            import difflib  # noqa: PLC0415 - for a user who misspells one

            near = difflib.get_close_matches(name, KNOWN)
            known = f"did you mean {' or '.join(near)}?" if near else f"use {', '.join(KNOWN)}"
            raise errors.BadOption(f"{of}: no option of kiln.job is called {name!r}: {known}")
    if given.get("parallel") is not None and given.get("with_result_of") is not None:
        raise errors.BadOption(f"{of}: give one of parallel= and with_result_of=, not both")
    for needed, is_there, names_ in (
        ("schedule=", given.get("schedule") is not None, _SCHEDULE),
        ("parallel= or with_result_of=", is_parallel(given), (*_PARALLEL, "finalizer")),
    ):
        alone = [name for name in names_ if name in given]
        if alone and not is_there:
            raise errors.BadOption(
                f"{of}: {alone[0]}={given[alone[0]]!r} has no meaning without {needed}: give that "
                "too, or leave it out"
            )


def is_parallel(given: Mapping[str, Any]) -> bool:
    """Return whether a job has an index set."""
    return given.get("parallel") is not None or given.get("with_result_of") is not None


def special_names(given: Mapping[str, Any], of: str) -> frozenset[str]:
    """Return the names of the parameters that get the index of a parallel job.

    Raises BadOption for an invalid `parallel`.
    """
    parallel: Parallel | None = given.get("parallel")
    if given.get("with_result_of") is not None:
        return frozenset({job_parameters.INDEX, job_parameters.ITEM})
    if parallel is None:
        return frozenset()
    if isinstance(parallel, Mapping):
        return frozenset({job_parameters.INDEX, job_parameters.MATRIX})
    if isinstance(parallel, int) and not isinstance(parallel, bool):
        return frozenset({job_parameters.INDEX})
    if isinstance(parallel, Sequence) and not isinstance(parallel, str):
        return frozenset({job_parameters.INDEX, job_parameters.KEY})
    raise errors.BadOption(
        f"{of}: parallel={parallel!r}: must be a number of indexes, a list of keys, or a mapping "
        "with a list of values for each key"
    )


def config_name(given: Mapping[str, Any], function_name: str) -> str:
    """Return the name of the JobConfig: the setting `name`, or one derived from the function's."""
    name = given.get("name")
    return str(name) if name else function_name.rpartition(".")[2].replace("_", "-").lower()


def job_config_body(  # noqa: PLR0913 - the parts of a JobConfig, by name
    name: str,
    given: Mapping[str, Any],
    *,
    task_template: Mapping[str, Any],
    options: Sequence[Mapping[str, Any]],
    finalizer: Mapping[str, Any] | None = None,
    hooks: Sequence[Mapping[str, Any]] = (),
    base: api_task.TaskSpec | None = None,
    of: str,
    description: str = "",
) -> dict[str, Any]:
    """Return the JobConfig object for the settings in `given`, checked.

    `base`: a task spec whose retry settings and timeouts apply where `given` has none. Raises
    BadOption with each invalid field and with `of`, the name of the function.
    """
    _check_retries(given, of)
    template = {
        "taskTemplate": {**task_template, **_where(given)},
        "retry": _retry(given, base),
        "timeouts": _timeouts(given, base),
        "parallelism": _parallelism(given, of),
        "hooks": list(hooks),
        "finalizer": None if finalizer is None else {"taskTemplate": finalizer},
    }
    spec = {
        "template": {"spec": _without_empty(template)},
        "concurrency": {
            "policy": given.get("concurrency", "Allow"),
            **_renamed(given, _CONCURRENCY),
        },
        "schedule": _schedule(given),
        "option": {"options": list(options)} if options else None,
        "priority": given.get("priority"),
        "locks": _locks(given),
        "dependsOn": _depends_on(given, of),
        "ttlSecondsAfterFinished": given.get("ttl"),
    }
    metadata: dict[str, Any] = {"name": name}
    if description:
        metadata["annotations"] = {DESCRIPTION: description}
    body = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": job_config.JobConfig.__name__,
        "metadata": metadata,
        "spec": _without_empty(spec),
    }
    return _checked(body, of)


def _checked(body: dict[str, Any], of: str) -> dict[str, Any]:
    problem = names.subdomain_problem(body["metadata"]["name"])
    if problem:
        name = body["metadata"]["name"]
        raise errors.BadOption(f"{of}: {name!r} is no name of a JobConfig: {problem}; give name=")
    try:
        plain: dict[str, Any] = msgspec.to_builtins(body, str_keys=True)
        declared = msgspec.convert(plain, job_config.JobConfig)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise errors.BadOption(f"{of}: its JobConfig is not valid: {error}") from error
    problems = job_validation.validate_job_config(declared)
    if problems:
        listed = "; ".join(f"{field} {problem}" for field, problem in problems)
        raise errors.BadOption(f"{of}: its JobConfig is not valid: {listed}")
    return plain


def _check_retries(given: Mapping[str, Any], of: str) -> None:
    retries = given.get("retries", 0)
    if type(retries) is not int or retries < 0:
        raise errors.BadOption(f"{of}: retries={retries!r}: must be a whole number, 0 or more")


def _where(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "cluster" in given:
        found["clusterName"] = given["cluster"]
    if given.get("pod") is not None:
        found["pod"] = {"spec": {}, **given["pod"]}
    return found


def _retry(given: Mapping[str, Any], base: api_task.TaskSpec | None) -> dict[str, Any]:
    found = {} if base is None else msgspec.to_builtins(base.retry)
    retries = given.get("retries")
    if retries is not None:
        found["maxAttempts"] = retries + 1
    return {**found, **_renamed(given, _RETRY)}


def _timeouts(given: Mapping[str, Any], base: api_task.TaskSpec | None) -> dict[str, Any]:
    found = {} if base is None else msgspec.to_builtins(base.timeouts)
    total = found.pop("totalSeconds", None)
    if total is not None:
        found["jobSeconds"] = total
    return {**found, **_renamed(given, _TIMEOUTS)}


def _parallelism(given: Mapping[str, Any], of: str) -> dict[str, Any] | None:
    parallel, listed = given.get("parallel"), given.get("with_result_of")
    if listed is not None:
        return {"withResultOf": _result_of(listed, of), **_renamed(given, _PARALLEL)}
    if parallel is None:
        return None
    if isinstance(parallel, Mapping):
        indexes: dict[str, Any] = {
            "withMatrix": {key: list(values) for key, values in parallel.items()}
        }
    elif isinstance(parallel, int):
        indexes = {"withCount": parallel}
    else:
        indexes = {"withKeys": list(parallel)}
    return {**indexes, **_renamed(given, _PARALLEL)}


def _schedule(given: Mapping[str, Any]) -> dict[str, Any] | None:
    expressions = given.get("schedule")
    if expressions is None:
        return None
    cron: dict[str, Any] = (
        {"expression": expressions}
        if isinstance(expressions, str)
        else {"expressions": list(expressions)}
    )
    missed = given.get("missed_runs")
    return _without_empty(
        {
            "cron": {**cron, **_renamed(given, {"timezone": "timezone"})},
            "daylightSaving": given.get("daylight_saving"),
            "missedRuns": {"policy": missed} if isinstance(missed, str) else missed,
        }
    )


def _locks(given: Mapping[str, Any]) -> list[dict[str, str]]:
    locks = given.get("locks", ())
    if isinstance(locks, Mapping):
        return [{"name": name, "mode": mode} for name, mode in locks.items()]
    if isinstance(locks, str):
        locks = (locks,)
    return [{"name": name} for name in locks]


def _result_of(listed: Any, of: str) -> dict[str, Any]:
    if isinstance(listed, Mapping):
        return dict(listed)
    name = job_name(listed)
    if name is None or isinstance(listed, str):
        raise errors.BadOption(
            f"{of}: with_result_of={listed!r}: must be a job, or a mapping such as "
            '{"task": "list-files", "path": "$.files"}'
        )
    return {"jobConfig": name}


def _depends_on(given: Mapping[str, Any], of: str) -> list[dict[str, Any]]:
    items = given.get("depends_on", ())
    if isinstance(items, Mapping) or job_name(items) is not None:
        items = (items,)
    found = []
    for item in items:
        name = job_name(item)
        if name is None and not isinstance(item, Mapping):
            raise errors.BadOption(
                f"{of}: depends_on={item!r}: must be a job, the name of one, or a mapping such as "
                '{"kind": "JobConfig", "name": "load"}'
            )
        found.append(dict(item) if name is None else {"kind": "JobConfig", "name": name})
    return found


def job_name(given: Any) -> str | None:
    """Return the name of a declared or deployed job.

    A text is the name itself. Return None for anything else.
    """
    name = given if isinstance(given, str) else getattr(given, "name", None)
    is_job = isinstance(given, str | job_runs.DeployedJob) or hasattr(given, "manifest")
    return name if is_job and isinstance(name, str) else None


def _renamed(given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[name] for name, field in fields.items() if given.get(name) is not None}


def _without_empty(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value not in (None, {}, [])}
