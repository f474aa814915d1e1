"""Checks of the templates of Jobs beyond their schema; problems are (field, text) pairs.

Used by `job_validation` for the templates of Jobs and JobConfigs. `task_validation` checks what a
task runs, as for a Task, with the additional variables of Jobs. No I/O.
"""

import math
import re
from collections.abc import Collection, Iterator
from typing import Any

from kilnwork.api import (
    crd_jobs,
    job,
    job_variables,
    json_limits,
    resolved_job_settings,
    substitution,
    task,
    task_validation,
    template_fields,
)

Problem = task_validation.Problem

_MATRIX_KEY = re.compile(r"[a-z0-9_-]+")


def problems(template: job.JobTemplate, at: str, *, known: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of a template at the field `at`.

    `known`: allowed variables in addition to those of every Job: options, substitutions,
    JobConfig.
    """
    known = {*known, *job_variables.JOB}
    yield from _form_problems(template, at)
    if template.parallelism is not None:
        yield from _parallelism_problems(template.parallelism, f"{at}.parallelism")
    field = f"{at}.taskTemplate" if template.task_template is not None else f"{at}.task.template"
    if template.effective_task is not None:
        of_index = job_variables.of_index(template.parallelism)
        yield from _task_problems(template.effective_task, field, known={*known, *of_index})
    for position, hook in enumerate(template.hooks):
        yield from _hook_problems(hook, f"{at}.hooks[{position}]", known)
    if template.finalizer is not None:
        finalizer_task = template.finalizer.task_template
        field = f"{at}.finalizer.taskTemplate"
        yield from _task_problems(
            finalizer_task, field, known=known, given_inputs=(job_variables.RESULTS_INPUT,)
        )
        for position, given in enumerate(finalizer_task.inputs):
            if given.name == job_variables.RESULTS_INPUT:
                yield f"{field}.inputs[{position}].name", "is the input with the results: rename it"


def _form_problems(template: job.JobTemplate, at: str) -> Iterator[Problem]:
    """Yield fields that are set in both of their forms, or in neither."""
    if template.effective_task is None:
        yield f"{at}.taskTemplate", "is needed: it says what each task runs"
    elif template.task_template is not None and template.task is not None:
        yield f"{at}.task", crd_jobs.TASK_RULE
    if template.retry is not None:
        for field, given in (
            ("maxAttempts", template.max_attempts),
            ("retryDelaySeconds", template.retry_delay_seconds),
        ):
            if given is not None:
                yield f"{at}.{field}", crd_jobs.RETRY_RULE
    limits = template.timeouts or job.JobTimeouts()
    if None not in (limits.pending_seconds, template.task_pending_timeout_seconds):
        yield f"{at}.taskPendingTimeoutSeconds", crd_jobs.PENDING_RULE


def _hook_problems(hook: job.Hook, at: str, known: Collection[str]) -> Iterator[Problem]:
    if (hook.phases is None) is (hook.on is None):
        yield f"{at}.phases", crd_jobs.HOOK_RULE
        return
    field = "on" if hook.phases is None else "phases"
    for position, event in enumerate(hook.events):
        if event in hook.events[:position]:
            yield f"{at}.{field}[{position}]", "is there twice"
    variables = {*known, *job_variables.HOOK}
    yield from _task_problems(hook.task_template, f"{at}.taskTemplate", known=variables)


def _task_problems(
    what: task.TaskTemplate, at: str, *, known: Collection[str], given_inputs: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a task. `known`: allowed variables in addition to those of every
    task."""
    found = task_validation.template_problems(what, given_inputs=given_inputs, more=known)
    yield from ((at + field.removeprefix("spec"), problem) for field, problem in found)
    early = {*known, *job_variables.EARLY}
    for part in template_fields.fields_with_variables(what, given_inputs):
        if part.second_pass is not None:
            continue  # reported above
        field = f"{at}.{part.field}"
        instead = job_variables.INSTEAD_IN_COMMANDS
        if part.attribute == "call":
            instead = job_variables.INSTEAD_IN_CALLS
        try:
            yield from substitution.find_problems(part.read(field), early, field, instead=instead)
        except json_limits.LimitExceeded as error:
            yield field, str(error)


def _parallelism_problems(parallelism: job.Parallelism, at: str) -> Iterator[Problem]:
    given = (
        parallelism.with_count,
        parallelism.with_keys,
        parallelism.with_matrix,
        parallelism.with_result_of,
    )
    if sum(one is not None for one in given) != 1:
        yield at, crd_jobs.INDEX_RULE
        return
    if parallelism.with_keys is not None:
        yield from _value_problems(parallelism.with_keys, f"{at}.withKeys")
    if parallelism.with_matrix is not None:
        yield from _matrix_problems(parallelism.with_matrix, f"{at}.withMatrix")
    if parallelism.with_result_of is not None:
        yield from _source_problems(parallelism.with_result_of, f"{at}.withResultOf")
    total = total_of(parallelism)
    yield from _strategy_problems(
        parallelism.completion_strategy, f"{at}.completionStrategy", total
    )


def total_of(parallelism: job.Parallelism) -> int | None:
    """Return the number of indexes, or None if it depends on a result."""
    if parallelism.with_count is not None:
        return parallelism.with_count
    if parallelism.with_keys is not None:
        return len(parallelism.with_keys)
    if parallelism.with_matrix is not None:
        return math.prod(map(len, parallelism.with_matrix.values()))
    return None


def _value_problems(values: tuple[str, ...], at: str) -> Iterator[Problem]:
    if not values:
        yield at, "must have at least one value"
    for position, value in enumerate(values):
        if (variable := _variable_in(value)) is not None:
            problem = f"has the variable {variable}, and is taken as it is written: name each index"
            yield f"{at}[{position}]", problem
            return
    if len(values) > job.MAX_INDEXES:
        yield at, f"must be at most {job.MAX_INDEXES}, not {len(values)}"
    elif len(set(values)) < len(values):
        seen: set[str] = set()
        for position, value in enumerate(values):
            if value in seen:
                yield f"{at}[{position}]", f"is there twice: {json_limits.show(value)}"
                return
            seen.add(value)


def _variable_in(text: str) -> str | None:
    if "${" not in text:
        return None
    parts = substitution.split(text)
    return next((f"${{{one.name}}}" for one in parts if not isinstance(one, str)), None)


def _matrix_problems(matrix: dict[str, tuple[str, ...]], at: str) -> Iterator[Problem]:
    if not matrix:
        yield at, "must have at least one key"
    for key, values in matrix.items():
        if not _MATRIX_KEY.fullmatch(key):
            yield f"{at}.{key}", "is no key: only a-z, 0-9, _ and - may be in it"
        yield from _value_problems(values, f"{at}.{key}")
    total = math.prod(map(len, matrix.values()))
    if total > job.MAX_INDEXES:
        yield at, f"must be at most {job.MAX_INDEXES} combinations, not {total}"


def _source_problems(source: job.ResultSource, at: str) -> Iterator[Problem]:
    given = (("task", source.task), ("job", source.job), ("jobConfig", source.job_config))
    if sum(name is not None for _, name in given) != 1:
        yield at, crd_jobs.SOURCE_RULE
    yield from task_validation.name_problems((f"{at}.{field}", name) for field, name in given)
    if source.path and (problem := task_validation.path_problem(source.path)):
        yield f"{at}.path", problem


def _strategy_problems(strategy: Any, at: str, total: int | None) -> Iterator[Problem]:
    if strategy in resolved_job_settings.STRATEGIES:
        return
    fields = (resolved_job_settings.MIN_SUCCESSFUL, resolved_job_settings.MAX_FAILED)
    if not isinstance(strategy, dict) or len(strategy) != 1 or not strategy.keys() <= {*fields}:
        listed = ", ".join(resolved_job_settings.STRATEGIES)
        seen = json_limits.show(strategy)
        yield at, f"must be {listed}, {{minSuccessful: N}} or {{maxFailed: N}}, not {seen}"
        return
    ((name, value),) = strategy.items()
    if name == resolved_job_settings.MIN_SUCCESSFUL:
        yield from _number_problems(value, f"{at}.{name}", least=1, most=total)
    elif isinstance(value, str):
        try:
            resolved_job_settings.percent_of(value, total or 0)
        except ValueError as error:
            yield f"{at}.{name}", f"{error}, not {json_limits.show(value)}"
    else:
        yield from _number_problems(value, f"{at}.{name}", least=0, most=None)


def _number_problems(value: Any, at: str, *, least: int, most: int | None) -> Iterator[Problem]:
    highest = job.MAX_INDEXES if most is None else most
    if type(value) is not int or not least <= value <= highest:
        what = "indexes there are" if most is not None else "indexes a Job may have"
        wanted = f"from {least} to {highest}, as many {what}"
        yield at, f"must be a whole number {wanted}, not {json_limits.show(value)}"
