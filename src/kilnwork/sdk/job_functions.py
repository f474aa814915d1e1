"""`@kiln.job`: turns functions and templates into jobs, for which `kiln deploy` creates JobConfigs.

Used by programs, by `kiln deploy` (`JobFunction.manifest`) and by the worker's slots, which import
the function by its name. The settings are described in `job_manifests`, the conversion of
parameters to options in `job_parameters`, submitting and following Jobs in `job_runs`.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import msgspec

from kilnwork.api import task as api_task
from kilnwork.sdk import (
    errors,
    job_manifests,
    job_parameters,
    job_runs,
    job_task_specs,
    serialization,
    templates,
)
from kilnwork.sdk import options as sdk_options
from kilnwork.sdk import task as sdk_task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")

KILL_GRACE_S = sdk_options.KILL_GRACE_S


class JobFunction(Generic[P, R_co]):
    """A function that is a job: `@kiln.job` returns it, and `kiln deploy` creates its JobConfig.

    Calling it runs the function in this process. `submit` creates a Job from its JobConfig, which
    must have been deployed. `name`: the name of the JobConfig. `location`: the file and line of the
    function, for error messages.
    """

    def __init__(
        self,
        made_of: Callable[..., Any],
        given: Mapping[str, Any],
        *,
        name: str,
        module: str,
        location: str,
    ) -> None:
        if not isinstance(made_of, templates.TemplateTask):
            functools.update_wrapper(self, made_of)
        self.__module__ = module
        self.name = job_manifests.config_name(given, name)
        self.location = location
        self._of = f"{location}: {self.name}"
        self._made_of = made_of
        self._given = dict(given)
        self._run_options = job_runs.RunOptions()
        self._special = job_manifests.special_names(given, self._of)
        self._parameters = self._find_parameters()
        self._check_scheduled()
        self._config = self._build()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in this process, as if it were not a job."""
        result: R_co = self._made_of(*args, **kwargs)
        return result

    @overload
    def submit(
        self: "JobFunction[P, Coroutine[Any, Any, A]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> job_runs.JobRun[A]: ...
    @overload
    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> job_runs.JobRun[R_co]: ...
    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        """Create a Job of the deployed JobConfig with these values of its options; return at once.

        Raises TypeError and ValueError for values that the function does not accept, before
        anything is sent; NoSession; ConfigurationError if there is no such JobConfig; and BadOption
        for values that the deployed JobConfig does not allow.
        """
        return job_runs.submit(self.name, self._values(args, kwargs), self._run_options)

    def options(self, **changes: Unpack[job_runs.RunChanges]) -> Self:
        """Return a copy that submits Jobs with these options; see `job_runs.RunChanges`. Raises
        BadOption.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._run_options = job_runs.changed(self._run_options, changes, of=self._of)
        return other

    def manifest(self) -> dict[str, Any]:
        """Return the JobConfig that `kiln deploy` applies.

        Raises BadOption for a function that no worker could import.
        """
        if not isinstance(self._made_of, templates.TemplateTask):
            self._check_importable()
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._config))
        return found

    @property
    def __kiln_function__(self) -> Callable[..., Any]:
        """The function that a worker calls."""
        return self._made_of

    def __kiln_arguments__(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the function for a call in a worker.

        They are converted from `given`, the option values of a Job by name. Raises ValueError.
        """
        known = {parameter.name: parameter for parameter in self._parameters}
        arguments = {}
        for name, value in given.items():
            parameter = known.get(name)
            if parameter is not None and parameter.is_left_out(value):
                continue
            try:
                arguments[name] = value if parameter is None else parameter.value(value)
            except ValueError as error:
                raise ValueError(f"{self.name}: option {name!r}: {error}") from error
        return arguments

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _check_scheduled(self) -> None:
        needed = [one.name for one in self._parameters if one.required]
        if needed and self._given.get("schedule") is not None:
            raise errors.BadOption(
                f"{self._of}: schedule={self._given['schedule']!r}: a schedule gives no values, "
                f"and {', '.join(needed)} would need one: give each parameter a default"
            )

    def _find_parameters(self) -> tuple[job_parameters.Parameter, ...]:
        if isinstance(self._made_of, templates.TemplateTask):
            return tuple(
                job_parameters.Parameter(name, job_parameters.Type.JSON)
                for name in sorted(self._made_of.inputs - self._special)
            )
        return job_parameters.of_function(self._made_of, special=self._special, of=self._of)

    def _build(self) -> dict[str, Any]:
        made_of = self._made_of
        finalizer, hooks = self._given.get("finalizer"), self._given.get("hooks")
        base = made_of._spec if isinstance(made_of, templates.TemplateTask) else None
        given = self._given if base is not None else {"kill_grace": KILL_GRACE_S, **self._given}
        return job_manifests.job_config_body(
            self.name,
            given,
            task_template=self._call() if base is None else self._template(base),
            options=[parameter.option() for parameter in self._parameters],
            finalizer=None if finalizer is None else job_task_specs.finalizer(finalizer, self._of),
            hooks=[] if hooks is None else job_task_specs.hooks(hooks, self._of),
            base=base,
            of=self._of,
            description=_first_line(made_of),
        )

    def _variables(self, names: list[str]) -> dict[str, Any]:
        parallel = self._given.get("parallel")
        matrix = parallel if isinstance(parallel, Mapping) else ()
        return job_parameters.variables(names, self._special, matrix)

    def _call(self) -> dict[str, Any]:
        call: dict[str, Any] = {"function": serialization.function_name(self._made_of)}
        kwargs = self._variables(list(inspect.signature(self._made_of).parameters))
        return {"call": {**call, "kwargs": kwargs} if kwargs else call}

    def _template(self, spec: api_task.TaskSpec) -> dict[str, Any]:
        """Return fields of the template with its inputs replaced by variables of the Job."""
        inputs = sorted(getattr(self._made_of, "inputs", ()))
        if job_parameters.MATRIX in self._special and job_parameters.MATRIX in inputs:
            raise errors.BadOption(
                f"{self._of}: ${{task.inputs.matrix}} would be an object: give the template an "
                "input of another name, or write ${task.index_matrix.KEY} for the value of a key"
            )
        values = self._variables(inputs)
        return job_task_specs.of_template(spec, values)

    def _check_importable(self) -> None:
        module = sys.modules.get(self.__module__)
        found: Any = module
        name = serialization.function_name(self._made_of)
        for step in name.partition(":")[2].split("."):
            found = getattr(found, step, None)
        if self.__module__ == "__main__" or getattr(found, "_made_of", None) is not self._made_of:
            raise errors.BadOption(
                f"{self._of}: workers cannot import {name}: a job is a function at the top of a "
                "module, under its own name, that the workers can import too"
            )

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        known = {one.name: one for one in self._parameters}
        signature = inspect.Signature(
            [
                inspect.Parameter(
                    one.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if one.required else None,
                )
                for one in sorted(self._parameters, key=lambda one: not one.required)
            ]
        )
        if args and isinstance(self._made_of, templates.TemplateTask):
            raise TypeError(f"{self._of}: give its options by name: {', '.join(known) or 'none'}")
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            options = ", ".join(known) or "none"
            raise TypeError(f"{self.name}: {error}; its options are {options}") from None
        values = {}
        for name, value in given.items():
            try:
                values[name] = known[name].encode(value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.name}: option {name!r}: {error}") from error
        return values


class ParallelJobFunction(JobFunction[P, R_co]):
    """A job with an index set; its result is the result of its finalizer, or None without a
    finalizer.
    """

    def submit(self, /, *args: Any, **kwargs: Any) -> job_runs.JobRun[Any]:
        """Create a Job as `JobFunction.submit` does.

        The parameters that get the index are not options.
        """
        return job_runs.submit(self.name, self._values(args, kwargs), self._run_options)


class JobDecorator(Protocol):
    """The type of `@kiln.job(…)` before it is applied."""

    @overload
    def __call__(self, made_of: templates.TemplateTask[R], /) -> JobFunction[..., R]: ...
    @overload
    def __call__(self, made_of: Callable[P, R], /) -> JobFunction[P, R]: ...


class ParallelJobDecorator(Protocol):
    """The type of `@kiln.job(parallel=…)` and `@kiln.job(with_result_of=…)` before it is
    applied.
    """

    @overload
    def __call__(self, made_of: templates.TemplateTask[R], /) -> ParallelJobFunction[..., R]: ...
    @overload
    def __call__(self, made_of: Callable[P, R], /) -> ParallelJobFunction[P, R]: ...


@overload
def job(name: str, /) -> job_runs.DeployedJob: ...
@overload
def job(
    made_of: templates.TemplateTask[R], /, **given: Unpack[job_manifests.JobSettings]
) -> JobFunction[..., R]: ...
@overload
def job(
    made_of: Callable[P, R], /, **given: Unpack[job_manifests.JobSettings]
) -> JobFunction[P, R]: ...
@overload
def job(
    *, parallel: job_manifests.Parallel, **given: Unpack[job_manifests.JobSettings]
) -> ParallelJobDecorator: ...
@overload
def job(
    *, with_result_of: job_manifests.ResultOf, **given: Unpack[job_manifests.JobSettings]
) -> ParallelJobDecorator: ...
@overload
def job(**given: Unpack[job_manifests.JobSettings]) -> JobDecorator: ...
def job(made_of: Any = None, /, **given: Any) -> Any:
    """Declare a job: `@kiln.job(schedule="H 2 * * *", timezone="Europe/Zurich")` above a function.

    `kiln deploy MODULE` makes a JobConfig of each job of a module. The parameters of the function
    are the options of the JobConfig. `kiln.job` can also be called with a template, such as
    `kiln.http(…)` or `kiln.manifest(…)`, instead of decorating a function; it then needs `name=`.
    The settings are those of `job_manifests.JobSettings`. A job with an index set has one of these
    settings too:

    - `parallel=`: a number of indexes, a list of keys, or a mapping with a list of values for each
      key of a matrix; the function's parameters `index`, `key` and `matrix` then get the index;
    - `with_result_of=`: a job whose result is a list, or a mapping as in a JobConfig, such as
      `{"task": "list-files", "path": "$.files"}`; the parameters `index` and `item` then get the
      index.

    Called with a name alone, `kiln.job("report")`, it returns the job that is deployed under this
    name. Raises BadOption.
    """
    frame = sys._getframe(1)
    caller = str(frame.f_globals.get("__name__", "__main__"))
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if isinstance(made_of, str):
        if given:
            raise errors.BadOption(
                f"kiln.job({made_of!r}) is the job that is deployed under that name: options are "
                "for those that are declared, @kiln.job(…) above a function"
            )
        return job_runs.DeployedJob(made_of)
    job_manifests.check_names(given, place)
    if made_of is None:
        return lambda function: _declared(function, given, caller, place)
    return _declared(made_of, given, caller, place)


def _declared(made_of: Any, given: Mapping[str, Any], module: str, place: str) -> Any:
    kind = ParallelJobFunction if job_manifests.is_parallel(given) else JobFunction
    if isinstance(made_of, templates.TemplateTask):
        if not given.get("name"):
            raise errors.BadOption(f"{place}: a job of {made_of!r} has no name: give name=")
        return kind(made_of, given, name="", module=module, location=place)
    code = getattr(made_of, "__code__", None)
    if code is not None:
        place = f"{code.co_filename}:{code.co_firstlineno}"
    _check_function(made_of, place)
    return kind(
        made_of, given, name=made_of.__qualname__, module=made_of.__module__, location=place
    )


def _check_function(made_of: Any, place: str) -> None:
    if isinstance(made_of, JobFunction | sdk_task.Task):
        what = "a job" if isinstance(made_of, JobFunction) else "a task, by @kiln.task,"
        raise errors.BadOption(
            f"{place}: {made_of!r} is {what} already: give @kiln.job the function itself, with all "
            "options"
        )
    if not inspect.isfunction(made_of):
        raise errors.BadOption(
            f"{place}: kiln.job takes a function, a kiln.http(…) or its like, or the name of a "
            f"deployed job, not {made_of!r}; options are keywords: @kiln.job(retries=3)"
        )
    if "<" in made_of.__qualname__:
        raise errors.BadOption(
            f"{place}: {made_of.__qualname__}: workers cannot import it: a job is a function at "
            "the top of a module"
        )
    if inspect.isgeneratorfunction(made_of) or inspect.isasyncgenfunction(made_of):
        raise errors.BadOption(
            f"{place}: {made_of.__name__} is a generator, and a job has one result: return a list"
        )


def _first_line(made_of: Any) -> str:
    if isinstance(made_of, templates.TemplateTask):
        return ""
    return (inspect.getdoc(made_of) or "").partition("\n")[0].strip()
