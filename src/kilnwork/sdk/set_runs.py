"""SyncSet runs that a program submits and follows: `ss.submit()` returns a `SetRun`.

Used by `sync_sets`. A run is one generation of a SyncSet; it is polled, not watched, like runs of
Jobs (`job_runs`). Not for declaring steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kilnwork.api import kinds, sync_set
from kilnwork.kit import clock
from kilnwork.sdk import condition_polling, errors, job_requests, options, serialization, session
from kilnwork.sdk import task as sdk_task

_CHANGES = 5
"""How often a change is tried while other clients change the object at the same time."""

server = job_requests.of_session


class Shipping:
    """Ships functions that workers cannot import; keeps their blobs as long as this object
    exists.
    """

    def __init__(self) -> None:
        self._here = session.current()
        self._tasks: dict[Callable[..., Any], sdk_task.Task[..., Any]] = {}

    def call(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the `call` document of a function. Raises NotPicklable."""
        task = self._tasks.setdefault(function, sdk_task.Task(function, options.Options()))
        found: dict[str, Any] = {"function": serialization.function_name(function)}
        code = task._shipped(self._here)
        if code is not None:
            found["code"] = code
        if self._here.environment is not None:
            found["environment"] = self._here.environment
        return found


def submit(
    to: job_requests.ApiServer, body: Mapping[str, Any], shipping: Shipping, *, of: str
) -> "SetRun":
    """Create a SyncSet, or a new generation of an existing SyncSet. Raises ConfigurationError.

    `shipping`: held by the run, so that its blobs are kept until the object names them.
    """
    name = str(body["metadata"]["name"])
    try:
        for _ in range(_CHANGES):
            try:
                return SetRun(to, _written(to, name, body), shipping)
            except job_requests.RequestRefused as error:
                if error.status != job_requests.CONFLICT:
                    raise
        raise errors.ConfigurationError(f"{of}: others change SyncSet {name} all the time")
    except job_requests.RequestRefused as error:
        raise errors.ConfigurationError(f"{of}: {error}") from error


def _written(to: job_requests.ApiServer, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create the SyncSet object or replace the existing one; return the stored object.

    Raises RequestRefused, with CONFLICT if another client has changed the object meanwhile.
    """
    try:
        found = to.get(kinds.SYNC_SETS, name)
    except job_requests.RequestRefused as error:
        if error.status != job_requests.NOT_FOUND:
            raise
        return to.create(kinds.SYNC_SETS, body)
    generation = int(found["spec"].get("generation", 1)) + 1
    spec = {**body["spec"], "generation": generation}
    return to.replace(kinds.SYNC_SETS, name, {**found, "spec": spec})


class SetRun:
    """A generation of a SyncSet; `name` and `namespace` are those of the object.

    Any thread may use it. Once created, it works without the session.
    """

    def __init__(
        self, to: job_requests.ApiServer, made: Mapping[str, Any], kept: Any = None
    ) -> None:
        self.name = str(made["metadata"]["name"])
        self.namespace = to.namespace
        self.generation = int(made["spec"].get("generation", 1))
        self._run = int(made["spec"].get("run", 1))
        self._uid = str(made["metadata"]["uid"])
        self._server, self._kept = to, kept
        self._clock = clock.SystemClock()
        self._final: sync_set.SyncSetStatus | None = None

    def status(self) -> sync_set.SyncSetStatus:
        """Return the current status from the server: `phase`, `reason`, `message`, `snapshots`,
        `flow` and more.

        The phase is empty until this generation is admitted, and after `retry` until it runs again.
        Once the final status has been read, it is returned from then on. Before that, raises
        JobFailed if the SyncSet was deleted, or if a newer generation has been requested.
        """
        if self._final is not None:
            return self._final
        found = self._read()
        status = msgspec.convert(found.get("status") or {}, sync_set.SyncSetStatus)
        if int(found["spec"].get("generation", 1)) > self.generation:
            raise self._failed(
                "a newer generation has taken its place", phase="Killed", reason="Superseded"
            )
        if status.phase == sync_set.Phase.ADMISSION_ERROR:
            observed = int(found["metadata"].get("generation", 0)) <= status.observed_generation
            if observed:
                self._final = status
            return status if observed else sync_set.SyncSetStatus()
        if status.generation != self.generation:
            return sync_set.SyncSetStatus()
        if status.phase and sync_set.Phase(status.phase).final:
            if status.run < self._run:
                return sync_set.SyncSetStatus()
            self._final = status
        return status

    def steps(self) -> dict[str, sync_set.StepStatus]:
        """Return the state of each step by name, with the numbers of its tasks.

        The numbers are `total`, `succeeded`, `failed`, `running` and `reused`.
        """
        return self.status().flow.steps

    def done(self) -> bool:
        """Return whether the generation has finished."""
        self.status()
        return self._final is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the generation has finished, at most `timeout` seconds; return whether it
        has.
        """
        return condition_polling.wait_until(self.done, timeout, time=self._clock)

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the generation has finished, and return the flow's result.

        Raises JobFailed, with the phase, reason and message of the generation, if it did not
        succeed. Raises TimeoutError if it has not finished after `timeout` seconds; the generation
        then continues.
        """
        if not self.wait(timeout):
            raise TimeoutError(
                f"SyncSet {self.name} is not over after {timeout:g} s: it goes on; "
                f"`kiln why syncset/{self.name}` says what it waits for"
            )
        status = self.status()
        if status.phase != sync_set.Phase.SUCCEEDED:
            raise self._failed(status.message, phase=status.phase, reason=status.reason)
        if status.result is None:
            return None
        if status.result.value is msgspec.UNSET:
            return self._fetch()  # too large for the status
        return status.result.value

    def _fetch(self) -> Any:
        try:
            return self._server.set_result(self.name, self.generation)
        except job_requests.RequestRefused as error:
            raise errors.ConfigurationError(f"SyncSet {self.name}: its result: {error}") from error

    def suspend(self) -> None:
        """Suspend the SyncSet: no further task or worker starts; running tasks continue."""
        self._patch({"suspend": True})

    def resume(self) -> None:
        """Resume a suspended SyncSet."""
        self._patch({"suspend": False})

    def scale(self, group: str, replicas: int) -> None:
        """Change the number of workers of an elastic group while it runs.

        Raises ConfigurationError for a number outside the limits of the group.
        """
        groups = self._read()["spec"]["resources"]["groups"]
        if all(one["name"] != group for one in groups):
            known = ", ".join(str(one["name"]) for one in groups)
            raise errors.ConfigurationError(
                f"SyncSet {self.name} has no group {group!r}; there are: {known}"
            )
        changed = [{**one, "replicas": replicas} if one["name"] == group else one for one in groups]
        self._patch({"resources": {"groups": changed}})

    def cancel(self) -> None:
        """Cancel the generation: its running tasks are ended, and its phase becomes Killed.

        Has no effect on a finished generation.
        """
        if not self.done():
            self._patch({"killTimestamp": clock.rfc3339(self._clock.wall())})

    def retry(self) -> None:
        """Run the failed steps and the steps after them again on the same data; reuse other
        results.

        The generation must have failed or been killed. Raises ConfigurationError.
        """
        if not self._over():
            raise errors.ConfigurationError(
                f"SyncSet {self.name}: generation {self.generation} is not over: retry() is for "
                "one that has ended"
            )
        status = self.status()
        if status.phase not in (sync_set.Phase.FAILED, sync_set.Phase.KILLED):
            raise errors.ConfigurationError(
                f"SyncSet {self.name}: generation {self.generation} is {status.phase}: nothing of "
                "it failed that could run again; replay() runs all of it"
            )
        run = max(self._run, status.run) + 1
        self._patch({"run": run, "killTimestamp": None})
        self._run, self._final = run, None

    def replay(self) -> "SetRun":
        """Run the data and flow of this generation again as a new generation; return at once.

        Raises ConfigurationError if this generation has not finished.
        """
        if not self._over():
            raise errors.ConfigurationError(
                f"SyncSet {self.name}: generation {self.generation} is not over: replay() is for "
                "one that has ended"
            )
        newest = int(self._read()["spec"].get("generation", 1))
        change = {
            "generation": newest + 1,
            "replay": {"generation": newest + 1, "of": self.generation},
            "killTimestamp": None,
        }
        return SetRun(self._server, self._patch(change))

    def __repr__(self) -> str:
        return f"<SetRun {self.namespace}/{self.name} generation {self.generation}>"

    def _over(self) -> bool:
        try:
            return self.done()
        except errors.JobFailed as error:
            return error.reason == "Superseded"

    def _read(self) -> dict[str, Any]:
        try:
            found = self._server.get(kinds.SYNC_SETS, self.name)
        except job_requests.RequestRefused as error:
            if error.status == job_requests.NOT_FOUND:
                raise self._gone() from error
            raise errors.ConfigurationError(f"SyncSet {self.name}: {error}") from error
        if found["metadata"]["uid"] != self._uid:
            raise self._gone()
        return found

    def _patch(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        change = {"metadata": {"uid": self._uid}, "spec": dict(spec)}
        try:
            return self._server.patch(kinds.SYNC_SETS, self.name, change)
        except job_requests.RequestRefused as error:
            if error.status == job_requests.NOT_FOUND:
                raise self._gone() from error
            raise errors.ConfigurationError(f"SyncSet {self.name}: {error}") from error

    def _failed(self, message: str, *, phase: str, reason: str) -> errors.JobFailed:
        why = f"{reason}: {message}" if message else reason
        return errors.JobFailed(
            f"SyncSet {self.name}, generation {self.generation}, is {phase}: {why}",
            job=self.name,
            phase=phase,
            reason=reason,
        )

    def _gone(self) -> errors.JobFailed:
        return errors.JobFailed(
            f"SyncSet {self.name} is not there any more: it was deleted, or its time to live is "
            "over",
            job=self.name,
            reason="Deleted",
        )
