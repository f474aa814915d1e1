"""Our kinds as the embedded Kubernetes of `kiln up` is given them: definitions, rules, rights.

Used by `wiring`. A real Kubernetes gets the same definitions from `installing`.
"""

from functools import partial

from kilnwork.api import admission, crd, kinds, manager, meta
from kilnwork.controlplane import extensions

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_SHOWN = "tasks tasks/status taskobjects taskclusters taskclusters/status taskclusters/scale jobs"
_CHANGED = "tasks taskobjects taskclusters taskclusters/scale jobs"


def _rule(resources: str, verbs: list[str]) -> meta.JsonObject:
    return {"verbs": verbs, "apiGroups": [kinds.GROUP], "resources": resources.split()}


EXTENSIONS = extensions.Extensions(
    kinds=(
        extensions.Kind(
            definition=crd.definition(kinds.TASKS),
            validate=admission.validate_task,
            validate_update=admission.validate_task_update,
            warnings=admission.warn_of_task,
        ),
        extensions.Kind(
            definition=crd.definition(kinds.TASK_OBJECTS),
            validate_update=admission.validate_task_object_update,
            warnings=partial(admission.warn, kinds.TASK_OBJECTS.kind),
        ),
        extensions.Kind(
            definition=crd.definition(kinds.TASK_CLUSTERS),
            validate=admission.validate_task_cluster,
            warnings=partial(admission.warn, kinds.TASK_CLUSTERS.kind),
            pod_template="template",
        ),
    ),
    view=(_rule(_SHOWN, _READ),),
    edit=(_rule(_CHANGED, _WRITE),),
    server_names=(manager.SERVER_NAME,),
)
