"""The resources of kilnwork, all in the API group `kilnwork.dev`.

Used wherever their URLs and definitions are needed. Kubernetes' own resources are in
`api_resources`.
"""

from kilnwork.api import api_resources

GROUP = "kilnwork.dev"
VERSION = "v1alpha1"


def _kind(kind: str, plural: str, short_name: str) -> api_resources.Resource:
    return api_resources.Resource(
        group=GROUP,
        version=VERSION,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=(short_name,),
        categories=("kiln",),
    )


TASKS = _kind("Task", "tasks", "ktask")
TASK_OBJECTS = _kind("TaskObject", "taskobjects", "ktobj")
TASK_CLUSTERS = _kind("TaskCluster", "taskclusters", "ktc")

TASK_CLAIMS = _kind("TaskClaim", "taskclaims", "ktclaim")

JOBS = _kind("Job", "jobs", "kjob")
JOB_CONFIGS = _kind("JobConfig", "jobconfigs", "kjc")

SYNC_SETS = _kind("SyncSet", "syncsets", "kss")
DATA_PONDS = _kind("DataPond", "dataponds", "kpond")

OURS = (
    TASKS,
    TASK_OBJECTS,
    TASK_CLUSTERS,
    TASK_CLAIMS,
    JOBS,
    JOB_CONFIGS,
    SYNC_SETS,
    DATA_PONDS,
)
ALL = (*api_resources.BUILT_IN, *OURS)
"""All resources that `kiln up` serves, before users define further ones."""
