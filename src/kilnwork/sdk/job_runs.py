"""Jobs that a program submits and follows: `kiln.job("name").submit(…)` returns a `JobRun`.

Used by programs, and by `job_functions` for the jobs that they declare. Option values are checked
against the deployed JobConfig before a Job is created. A run is polled, not watched: the status of
its object is read at growing intervals. Spawned tasks have futures instead (`futures`).
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack

import msgspec

from kilnwork.api import job, job_config, job_from_config, job_indexes, kinds
from kilnwork.api import job_config_options as api_options
from kilnwork.kit import clock, ids
from kilnwork.sdk import condition_polling, errors, job_parameters, job_requests

R_co = TypeVar("R_co", covariant=True)


class RunChanges(TypedDict, total=False):
    """The options of one Job, as `.options(…)` of a job takes them.

    `name`: the name of the Job; by default the name of the JobConfig with a random suffix.
    `priority`: Jobs with a higher priority start first. `start_after`: a time before which the Job
    does not start, as a datetime or an ISO 8601 text, with a time zone. `concurrency`: the policy
    for this Job while others of its JobConfig run; None: that of the JobConfig. `depends_on`: Jobs
    that must succeed before it starts: names of Jobs, JobRuns, or items as in `spec.dependsOn`,
    which may also allow any end (`outcome: Finished`).
    """

    name: str | None
    priority: int
    start_after: datetime.datetime | str | None
    concurrency: Literal["Allow", "Forbid", "Enqueue", "Replace"] | None
    depends_on: Sequence[Any]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The checked options of one Job; see `RunChanges`."""

    name: str | None = None
    priority: int = 0
    start_after: str | None = None
    concurrency: job.ConcurrencyPolicy | None = None
    depends_on: tuple[dict[str, str], ...] = ()


def changed(before: RunOptions, changes: Mapping[str, Any], *, of: str) -> RunOptions:
    """Return the options of a Job with these changes. Raises BadOption.

    `of`: the name of the job, for error messages.
    """
    found: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in RunChanges.__annotations__:
            known = ", ".join(RunChanges.__annotations__)
            raise errors.BadOption(f"{of}: no option is called {name!r}: use {known}")
        try:
            found[name] = _CHECKS[name](value)
        except (TypeError, ValueError) as error:
            raise errors.BadOption(f"{of}: {name}={value!r}: {error}") from error
    return replace(before, **found)


def _name(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError("must be the name of a Job")
    return value


def _priority(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


def _start_after(value: Any) -> str | None:
    if value is None:
        return None
    moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime.datetime) or moment.tzinfo is None:
        raise ValueError("must be a datetime with a time zone")
    return moment.isoformat()


def _concurrency(value: Any) -> job.ConcurrencyPolicy | None:
    return None if value is None else job.ConcurrencyPolicy(value)


def _depends_on(value: Any) -> tuple[dict[str, str], ...]:
    if isinstance(value, str | JobRun | Mapping):
        value = (value,)
    return tuple(_dependency(each) for each in value)


def _dependency(value: Any) -> dict[str, str]:
    if isinstance(value, JobRun):
        return {"kind": "Job", "name": value.name}
    if isinstance(value, str):
        return {"kind": "Job", "name": value}
    return msgspec.to_builtins(msgspec.convert(dict(value), job.Dependency))  # type: ignore[no-any-return]


_CHECKS = {
    "name": _name,
    "priority": _priority,
    "start_after": _start_after,
    "concurrency": _concurrency,
    "depends_on": _depends_on,
}


class DeployedJob:
    """A job that is deployed as the JobConfig `name`; `kiln.job("name")` returns it."""

    def __init__(self, name: str, options: RunOptions = RunOptions()) -> None:
        self.name = name
        self._options = options

    def submit(self, /, **options: Any) -> "JobRun[Any]":
        """Create a Job with these values of the JobConfig's options; return at once.

        Values are JSON; dates and members of enums are written as texts. Raises NoSession,
        ConfigurationError if there is no such JobConfig, and BadOption for values that the options
        do not allow.
        """
        return submit(self.name, self._values(options), self._options)

    def options(self, **changes: Unpack[RunChanges]) -> Self:
        """Return a copy that submits Jobs with these options; see `job_runs.RunChanges`. Raises
        BadOption.
        """
        return type(self)(self.name, changed(self._options, changes, of=repr(self)))

    def __repr__(self) -> str:
        return f"kiln.job({self.name!r})"

    def _values(self, options: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for name, value in options.items():
            try:
                values[name] = job_parameters.plain(value)
            except (TypeError, ValueError) as error:
                raise errors.BadOption(f"{self!r}: option {name!r}: {error}") from error
        return values


def submit(name: str, values: Mapping[str, Any], options: RunOptions) -> "JobRun[Any]":
    """Create a Job of the JobConfig `name`. Raises NoSession, ConfigurationError, BadOption."""
    of = f"kiln.job({name!r})"
    server = job_requests.of_session(of)
    config = _config(server, name, of)
    request = job_from_config.JobRequest(
        name=options.name or f"{name}-{ids.new_uid()[:8]}",
        option_values=dict(values) or None,
        start_after=options.start_after,
        concurrency_policy=options.concurrency,
        priority=options.priority,
    )
    try:
        body = job_from_config.new_job(config, request)
    except api_options.InvalidOptions as error:
        raise errors.BadOption(f"{of}: {error}") from error
    if options.depends_on:
        body["spec"]["dependsOn"] = list(options.depends_on)
    try:
        made = server.create(kinds.JOBS, body)
    except job_requests.RequestRefused as error:
        raise errors.ConfigurationError(f"{of}: {error}") from error
    return JobRun(server, made)


def _config(server: job_requests.ApiServer, name: str, of: str) -> job_config.JobConfig:
    try:
        return msgspec.convert(server.get(kinds.JOB_CONFIGS, name), job_config.JobConfig)
    except job_requests.RequestRefused as error:
        if error.status != job_requests.NOT_FOUND:
            raise errors.ConfigurationError(f"{of}: {error}") from error
        known = ", ".join(server.names(kinds.JOB_CONFIGS)) or "none"
        raise errors.ConfigurationError(
            f'{of}: namespace "{server.namespace}" has no JobConfig "{name}"; those that exist: '
            f"{known}. `kiln deploy MODULE` makes one of each job of a module"
        ) from error
    except msgspec.ValidationError as error:
        raise errors.ConfigurationError(
            f"{of}: the JobConfig {name} cannot be read ({error}): see its condition Valid"
        ) from error


class JobRun(Generic[R_co]):
    """A submitted Job; `name` and `namespace` are those of its object.

    Any thread may use it. Once created, it works without the session.
    """

    def __init__(self, server: job_requests.ApiServer, made: Mapping[str, Any]) -> None:
        self.name = str(made["metadata"]["name"])
        self.namespace = server.namespace
        self._uid = str(made["metadata"]["uid"])
        self._server = server
        self._run = int(made["spec"].get("run", 1))
        finalized = "finalizer" in made["spec"]["template"]
        self._last_task = (
            f"{self.name}-finalizer" if finalized else job_indexes.task_name(self.name, 0)
        )
        self._clock = clock.SystemClock()
        self._final: job.JobStatus | None = None

    def status(self) -> job.JobStatus:
        """Return the current status from the server: `phase`, `reason`, `message`, `indexes` and
        more.

        Raises JobFailed if the Job was deleted.
        """
        if self._final is not None:
            return self._final
        try:
            found = self._server.get(kinds.JOBS, self.name)
        except job_requests.RequestRefused as error:
            if error.status == job_requests.NOT_FOUND:
                raise self._gone() from error
            raise errors.ConfigurationError(f"Job {self.name}: {error}") from error
        if found["metadata"]["uid"] != self._uid:
            raise self._gone()
        status = msgspec.convert(found.get("status") or {}, job.JobStatus)
        if status.run >= self._run and _is_final(status):
            self._final = status
        return status

    def done(self) -> bool:
        """Return whether the Job has finished."""
        self.status()
        return self._final is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the Job has finished, at most `timeout` seconds; return whether it has."""
        return condition_polling.wait_until(self.done, timeout, time=self._clock)

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the Job has finished, and return the result of its task, or of its finalizer.

        Raises JobFailed, with the phase, reason and message of the Job, if the Job did not succeed.
        Raises TimeoutError if it has not finished after `timeout` seconds; the Job then continues.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"Job {self.name} is not over after {timeout:g} s: it goes on")
        status = self.status()
        if status.phase != job.Phase.SUCCEEDED:
            raise self._failed(status)
        result: Any = None
        if status.result is not None:
            result = status.result.value
            if result is msgspec.UNSET:  # too large for the status, or not JSON
                result = self._fetch(self._last_task, digest=status.result.digest)
        return result  # type: ignore[no-any-return]

    def results(self, timeout: float | None = None) -> Iterator[Any]:
        """Wait until the Job has finished, and yield the results of its indexes in order.

        For an index without a result None is yielded, as in Jobs that tolerate failures. Raises
        TimeoutError after `timeout` seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"Job {self.name} is not over after {timeout:g} s: it goes on")
        try:
            for index in self._server.indexes(self.name):
                succeeded = index["state"] == "Succeeded"
                yield self._fetch(index["task"]) if succeeded else None
        except job_requests.RequestRefused as error:
            raise errors.ConfigurationError(f"Job {self.name}: {error}") from error

    def suspend(self) -> None:
        """Suspend the Job: no further index starts; running indexes continue."""
        self._patch({"suspend": True})

    def resume(self) -> None:
        """Resume a suspended Job."""
        self._patch({"suspend": False})

    def cancel(self) -> None:
        """Cancel the Job: its running tasks are ended, and its phase becomes Killed.

        Has no effect on a finished Job.
        """
        if not self.done():
            self._patch({"killTimestamp": clock.rfc3339(self._clock.wall())})

    def retry(self) -> None:
        """Run again the indexes of a finished Job that have not succeeded.

        Raises ConfigurationError if the Job has not finished.
        """
        if not self.done():
            raise errors.ConfigurationError(
                f"Job {self.name} is not over: retry() is for one that has ended; cancel() ends it"
            )
        run = max(self._run, self.status().run) + 1
        self._patch({"run": run})
        self._run, self._final = run, None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name}>"

    def _fetch(self, task: str, *, digest: str = "") -> Any:
        try:
            return self._server.result(task, digest=digest)
        except job_requests.RequestRefused as error:
            raise errors.ConfigurationError(f"Job {self.name}: its result: {error}") from error

    def _patch(self, spec: Mapping[str, Any]) -> None:
        change = {"metadata": {"uid": self._uid}, "spec": dict(spec)}
        try:
            self._server.patch(kinds.JOBS, self.name, change)
        except job_requests.RequestRefused as error:
            if error.status == job_requests.NOT_FOUND:
                raise self._gone() from error
            raise errors.ConfigurationError(f"Job {self.name}: {error}") from error

    def _failed(self, status: job.JobStatus) -> errors.JobFailed:
        why = f"{status.reason}: {status.message}" if status.message else status.reason
        return errors.JobFailed(
            f"Job {self.name} is {status.phase}: {why}",
            job=self.name,
            phase=status.phase,
            reason=status.reason,
        )

    def _gone(self) -> errors.JobFailed:
        return errors.JobFailed(
            f"Job {self.name} is not there any more: it was deleted, or its time to live is over",
            job=self.name,
            reason="Deleted",
        )


def _is_final(status: job.JobStatus) -> bool:
    return bool(status.phase) and job.Phase(status.phase).final
