"""Check of the object that a Task makes, by the server, before the Task is applied.

Used by `kiln apply`. The object of attempt 1 is created without being stored (`dryRun=All`), with
the rights of the user; the embedded API server checks it for all clients. What cannot be known yet
is a warning: a kind that does not exist, a right that only the manager has, the values of inputs.
"""

import msgspec

from kilnwork.api import api_resources, json_limits, meta, object_task_manifests, substitution, task
from kilnwork.cli import errors, session
from kilnwork.kube import errors as kube_errors


def is_object_task(kind: api_resources.Resource, body: meta.JsonObject) -> bool:
    """Return whether an object is a Task that makes a Kubernetes object."""
    spec = body.get("spec")
    return (
        kind.kind == "Task"
        and kind.group == "kilnwork.dev"
        and isinstance(spec, dict)
        and ("customResource" in spec or "workflow" in spec)
    )


async def check(s: session.Session, body: meta.JsonObject, namespace: str) -> None:
    """Have the server check the object that a Task would make.

    Raises CommandError if the server would refuse it.
    """
    try:
        spec = msgspec.convert(body["spec"], task.TaskSpec)
        sample, field = object_task_manifests.sample_object(
            spec, body["metadata"]["name"], namespace
        )
        kind = await s.kinds.of(sample["apiVersion"], sample["kind"])
    except (msgspec.ValidationError, substitution.InvalidTemplate, json_limits.LimitExceeded):
        return  # the server reports it with a better text
    except object_task_manifests.InvalidManifest:
        return
    except errors.InvalidInput as error:
        s.warn(f"{body['metadata']['name']}: its object is not checked: {error}")
        return
    try:
        path = s.path(kind, namespace=namespace)
        await s.ask("POST", path, query={"dryRun": "All", "fieldManager": "kiln"}, body=sample)
    except kube_errors.Invalid as error:
        text = f"{field}: the server refuses the object that it makes: {error}"
        if not spec.inputs and spec.input_object is None:
            raise errors.CommandError(text) from error
        s.warn(f"{text} (with names in the place of its inputs)")
    except kube_errors.ApiError as error:
        s.warn(f"{body['metadata']['name']}: its object is not checked: {error}")
