"""The observed state of a Job's dependencies, which are Jobs, Jobs of JobConfigs, Tasks, and their
results.

Used by `reconciler`. It reads caches, and the views and schedules of the engine; `plan` decides
what follows, `dependency_job_choice` chooses the Job of a JobConfig.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from kilnwork.api import input_assembly, job, job_config, task
from kilnwork.controllers import caches, ports
from kilnwork.controllers.job import dependency_job_choice, plan
from kilnwork.controllers.task import plan as task_plan
from kilnwork.dispatch import model
from kilnwork.jobs import index_job_types

FindInput = Callable[[input_assembly.InputSource, str], task_plan.Found]
"""Finds the data or result of a source in a namespace; provided by the Task controller."""

FindView = Callable[[str], model.TaskView | None]
"""Finds the dispatcher's view of the Task with a uid; provided by the Task controller."""

_K = job.DependencyKind


class Dependencies:
    """Finder of the dependencies of Jobs and their states.

    `views`: the engine's views of Jobs, by uid. `find_input`, `find_view`: see the types.
    """

    def __init__(
        self,
        known: caches.Caches,
        views: Mapping[str, index_job_types.IndexJobView],
        *,
        find_input: FindInput,
        find_view: FindView,
    ) -> None:
        self._caches, self._views = known, views
        self._find_input, self._find_view = find_input, find_view
        self._hub: ports.JobHub | None = None

    def use(self, hub: ports.JobHub) -> None:
        """Set the engine of jobs that is queried for schedules."""
        self._hub = hub

    def states(self, seen: job.Job) -> tuple[plan.DependencyState, ...]:
        """Return the state of each dependency of a Job."""
        return tuple(
            self._state(seen, one)
            for one in plan.all_dependencies(seen.spec.depends_on, seen.spec.template)
        )

    def sources(self, seen: job.Job) -> dict[input_assembly.InputSource, task_plan.Found]:
        """Return the state of each input of a Job by its source, including the list of
        `withResultOf`: its data, or why it is missing. Empty if the inputs are invalid.
        """
        try:
            wanted = plan.needed_inputs(seen)
        except input_assembly.InputError:
            return {}  # the plan reports the same problem
        return {source: self._source(seen, source) for source, _ in wanted.values()}

    def _source(self, seen: job.Job, source: input_assembly.InputSource) -> task_plan.Found:
        if source.kind in (input_assembly.InputKind.OBJECT, input_assembly.InputKind.TASK):
            return self._find_input(source, seen.metadata.namespace)
        chosen = self._job_of(seen, job.Dependency(kind=_K(source.kind), name=source.name))
        if chosen.found is None:
            return task_plan.Missing(chosen.waits)
        what, known = f"Job {chosen.found.metadata.name}", chosen.found.status
        view = self._views.get(chosen.found.metadata.uid)
        phase = known.phase if view is None else view.phase
        if phase != job.Phase.SUCCEEDED:
            return task_plan.Missing(f"{what} has not succeeded yet")
        if (known.result if view is None else view.result) is None:
            remedy = "give it a finalizer that makes one of those of its indexes"
            return task_plan.Broken(f"{what} has no result: {remedy}")
        if view is None:
            return task_plan.input_from_status(what, known.result)
        return task_plan.decode_input(what, view.result)

    def _state(self, seen: job.Job, wanted: job.Dependency) -> plan.DependencyState:
        namespace = seen.metadata.namespace
        if wanted.kind is _K.TASK:
            return self._task_state(wanted, namespace)
        chosen = self._job_of(seen, wanted)
        if chosen.found is None:
            return plan.DependencyState(wanted, finished=False, waits=chosen.waits)
        return self._job_state(seen, wanted, chosen.found)

    def _job_state(
        self, seen: job.Job, wanted: job.Dependency, found: job.Job
    ) -> plan.DependencyState:
        name = found.metadata.name
        what = f"Job {name}"
        if wanted.kind is _K.JOB_CONFIG:
            what += f" of JobConfig {wanted.name}"
        view = self._views.get(found.metadata.uid)
        phase, why = found.status.phase, found.status.message or found.status.reason
        run = found.status.run
        if view is not None:
            phase, why, run = view.phase, view.message or view.reason, view.run
        if job.is_final(phase) and run >= found.spec.run:
            return plan.judge_dependency(
                wanted, f"{what} is {phase}: {why}", phase == job.Phase.SUCCEEDED
            )
        waits_for = partial(self._waits_for, seen.metadata.namespace)
        ring = plan.find_cycle(seen.metadata.name, waits_for)
        if name in ring:
            text = f"Jobs wait for each other (dependsOn): {' -> '.join(ring)}"
            return plan.DependencyState(wanted, finished=False, problem=text, job=name)
        return plan.DependencyState(
            wanted, finished=False, waits=f"{what} is not over yet", job=name
        )

    def _job_of(self, seen: job.Job, wanted: job.Dependency) -> dependency_job_choice.Choice:
        """Return the Job that a dependency on a Job or JobConfig refers to, or why none can be
        chosen yet.
        """
        namespace = seen.metadata.namespace
        if wanted.kind is _K.JOB_CONFIG:
            config = self._caches.job_configs.get((namespace, wanted.name))
            return self._missing(wanted, namespace) if config is None else self._of(seen, config)
        found = self._caches.jobs.get((namespace, wanted.name))
        return (
            self._missing(wanted, namespace)
            if found is None
            else dependency_job_choice.Choice(found)
        )

    def _of(self, seen: job.Job, config: job_config.JobConfig) -> dependency_job_choice.Choice:
        uid = config.metadata.uid
        row = None if self._hub is None else self._hub.schedule(uid)
        return dependency_job_choice.choose(
            seen, config, jobs=self._caches.jobs.owned_by(uid), row=row
        )

    def _missing(self, wanted: job.Dependency, namespace: str) -> dependency_job_choice.Choice:
        text = f"{wanted.kind} {wanted.name} does not exist in namespace {namespace}"
        return dependency_job_choice.Choice(waits=text)

    def _waits_for(self, namespace: str, name: str) -> Iterator[str]:
        """Yield the names of the Jobs that a Job waits for, if it has not started."""
        found = self._caches.jobs.get((namespace, name))
        if found is None or job.is_final(found.status.phase):
            return
        view = self._views.get(found.metadata.uid)
        if view is not None and view.started is not None:
            return
        for one in plan.all_dependencies(found.spec.depends_on, found.spec.template):
            if one.kind is _K.JOB:
                yield one.name
            elif one.kind is _K.JOB_CONFIG:
                chosen = self._job_of(found, one).found
                if chosen is not None:
                    yield chosen.metadata.name

    def _task_state(self, wanted: job.Dependency, namespace: str) -> plan.DependencyState:
        found = self._caches.tasks.get((namespace, wanted.name))
        what = f"Task {wanted.name}"
        if found is None:
            waits = self._missing(wanted, namespace).waits
            return plan.DependencyState(wanted, finished=False, waits=waits)
        # The view comes first: an end is written to the status some milliseconds later.
        known = self._find_view(found.metadata.uid) or found.status
        if not known.state or not task.State(known.state).final or known.run < found.spec.run:
            return plan.DependencyState(wanted, finished=False, waits=f"{what} is not over yet")
        why = f"{what} is {known.state}: {known.message or known.reason}"
        return plan.judge_dependency(wanted, why, known.state == task.State.SUCCESS)
