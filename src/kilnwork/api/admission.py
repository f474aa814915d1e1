"""Admission of our kinds on the embedded API server: JSON in, problems and warnings out.

Registered with the API server by the composition root. On a real Kubernetes the CEL rules of the
CRDs do this instead, and the controllers report the remaining problems in the status. Pure: a
check reads the object itself and no other.
"""

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import msgspec

from kilnwork.api import (
    crd,
    data_pond,
    data_pond_validation,
    field_support,
    job,
    job_config,
    job_validation,
    json_limits,
    kind_field_effects,
    kinds,
    meta,
    object_task_manifests,
    reasons,
    substitution,
    sync_set,
    sync_set_validation,
    task,
    task_claim,
    task_cluster,
    task_validation,
)

T = TypeVar("T")

RUN_UNCHANGED = (
    "spec has changed but spec.run has not: the current run goes on as it began; "
    "raise spec.run to run the new spec"
)
_NOT_THE_WORK = frozenset(
    {"run", "suspend", "killTimestamp", "ttlSecondsAfterFinished", "priority"}
)


def validate_task(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a Task beyond its schema."""
    declared = _decode(obj, task.Task)
    return [] if declared is None else task_validation.validate_task(declared)


def validate_task_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return a problem for each forbidden change of a Task."""
    before, after = _decode(old, task.Task), _decode(new, task.Task)
    if before is None or after is None:
        return []
    return task_validation.validate_task_update(before, after)


def sample_of_task(obj: meta.JsonObject) -> tuple[meta.JsonObject, str] | None:
    """Return the object that a Task creates, and the field of its manifest.

    None if it creates no object, or if the object depends on its inputs.
    """
    if not obj["spec"].keys() & {"customResource", "workflow"}:
        return None  # most Tasks create no object: do not parse them again
    declared, metadata = _decode(obj, task.Task), obj["metadata"]
    if declared is None or declared.spec.inputs or declared.spec.input_object is not None:
        return None
    try:
        return object_task_manifests.sample_object(
            declared.spec, metadata["name"], metadata["namespace"]
        )
    except (object_task_manifests.InvalidManifest, substitution.InvalidTemplate):
        return None  # reported by `validate_task`
    except json_limits.LimitExceeded:
        return None


def validate_task_cluster(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a TaskCluster beyond its schema."""
    cluster = _decode(obj, task_cluster.TaskCluster)
    return [] if cluster is None else task_validation.validate_task_cluster(cluster)


def validate_data_pond(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a DataPond beyond its schema."""
    pond = _decode(obj, data_pond.DataPond)
    return [] if pond is None else data_pond_validation.problems(pond)


def validate_job(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a Job beyond its schema."""
    declared = _decode_or_report(obj, job.Job)
    return declared if isinstance(declared, list) else job_validation.validate_job(declared)


def validate_job_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return a problem for each forbidden change of a Job."""
    before, after = _decode(old, job.Job), _decode(new, job.Job)
    if before is None or after is None:
        return []
    return job_validation.validate_job_update(before, after)


def validate_job_config(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a JobConfig beyond its schema."""
    declared = _decode_or_report(obj, job_config.JobConfig)
    return declared if isinstance(declared, list) else job_validation.validate_job_config(declared)


def validate_sync_set(obj: meta.JsonObject) -> list[task_validation.Problem]:
    """Return the problems of a SyncSet beyond its schema."""
    declared = _decode_or_report(obj, sync_set.SyncSet)
    if isinstance(declared, list):
        return declared
    return sync_set_validation.validate_sync_set(declared)


def validate_sync_set_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return a problem for each forbidden change of a SyncSet within a generation."""
    before, after = _decode(old, sync_set.SyncSet, status=True), _decode(new, sync_set.SyncSet)
    if before is None or after is None:
        return []
    return sync_set_validation.validate_sync_set_update(before, after)


def validate_task_object_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return a problem for each forbidden change of a TaskObject: any change of its data."""
    return [("data", "field is immutable")] if old.get("data") != new.get("data") else []


def validate_task_claim_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return a problem for each forbidden change of a TaskClaim: any change of its spec."""
    return [("spec", crd.CLAIM_RULE)] if old.get("spec") != new.get("spec") else []


OUTCOME_REASON = "which the manager says of waiting, lost and killed tasks: choose another word"


def validate_task_claim_status(
    old: meta.JsonObject, new: meta.JsonObject
) -> list[task_validation.Problem]:
    """Return the problems of the outcome of a TaskClaim.

    On a real Kubernetes a ValidatingAdmissionPolicy has the same rules
    (`cli.installation.all_objects`).
    """
    before: meta.JsonObject = old.get("status") or {}
    outcome: meta.JsonObject | None = (new.get("status") or {}).get("outcome")
    phase = before.get("phase")
    if outcome == before.get("outcome"):
        return []
    if outcome is None or before.get("outcome") is not None:
        return [("status.outcome", "cannot be changed")]
    if phase not in (task_claim.Phase.CLAIMED, task_claim.Phase.KILLING):
        return [("status.outcome", f"the claim has no task: its phase is {phase or 'not set'}")]
    if outcome["state"] == "Killed" and phase != task_claim.Phase.KILLING:
        return [("status.outcome.state", "is Killed only where status.phase is Killing")]
    if outcome["state"] == "Failed" and (reason := outcome.get("reason")) in reasons.NO_FAILURES:
        return [("status.outcome.reason", f"is {reason}, {OUTCOME_REASON}")]
    return []


def task_claim_right(claim: meta.JsonObject) -> tuple[str, str]:
    """Return the resource and the name on which writing a TaskClaim or its status requires the
    verb `use`."""
    return "executors/external", str(claim["spec"]["executor"])


def field_warnings(kind: str, new: meta.JsonObject, old: meta.JsonObject | None) -> Iterator[str]:
    """Yield a warning for each field that has no effect; for an update, only for the changed
    fields."""
    yield from field_support.new_sentences(
        partial(kind_field_effects.findings, kind, side=field_support.Side.EMBEDDED), new, old
    )


def task_warnings(new: meta.JsonObject, old: meta.JsonObject | None) -> Iterator[str]:
    """Yield the warnings of `field_warnings`, and one if a changed spec has no effect until
    `spec.run` is raised."""
    if old is not None:
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if before.get("run") == after.get("run") and _work(before) != _work(after):
            yield RUN_UNCHANGED
    yield from field_warnings(kinds.TASKS.kind, new, old)


def job_warnings(new: meta.JsonObject, old: meta.JsonObject | None) -> Iterator[str]:
    """Yield the warnings of `field_warnings`, and one for a template that is replaced by that of
    the JobConfig."""
    spec = new.get("spec") or {}
    if old is None and spec.get("configName") and spec.get("template"):
        name = spec["configName"]
        yield f"spec.template: has no effect: that of JobConfig {name} takes its place"
    yield from field_warnings(kinds.JOBS.kind, new, old)


def _work(spec: meta.JsonObject) -> meta.JsonObject:
    return {k: v for k, v in spec.items() if k not in _NOT_THE_WORK}


def _decode(obj: meta.JsonObject, type_: type[T], *, status: bool = False) -> T | None:
    """Return the object as a struct, or None if it is invalid, which the schema has already
    reported.

    The status is left out unless requested.
    """
    try:
        return _converted(obj, type_, status=status)
    except msgspec.ValidationError:
        return None


def _decode_or_report(obj: meta.JsonObject, type_: type[T]) -> T | list[task_validation.Problem]:
    """Return the object as a struct, or the problems that its schema does not express."""
    try:
        return _converted(obj, type_, status=False)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$.")
        return [(at.removesuffix("`") or "spec", why[0].lower() + why[1:])]


def _converted(obj: meta.JsonObject, type_: type[T], *, status: bool) -> T:
    names = ("metadata", "spec", "status") if status else ("metadata", "spec")
    parts = {key: value for key, value in obj.items() if key in names}
    return msgspec.convert(parts, type_, strict=False)
