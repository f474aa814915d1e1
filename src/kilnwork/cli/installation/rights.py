"""Roles in a cluster and their reasons: for the manager, and for people and programs that use it.

One table makes the roles of `kiln install` and, run as a program, docs/reference/rights.md (`make
docs`). Each verb is there because the code uses it; a test runs the manager with exactly these
rights and expects no denied request.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kilnwork.api import kinds, manager, meta
from kilnwork.cli.installation import settings

RBAC = "rbac.authorization.k8s.io"
MANAGER = "kilnwork-manager"
"""Name of the manager's ServiceAccount and of its roles."""

LEADER = "kilnwork-leader"
DRIVER = manager.DRIVER_ACCOUNT
READER = manager.READER_ACCOUNT
PROXY = "kilnwork-proxy"
HTTP_EXECUTOR = "kilnwork-executor-http"
"""Name of the ServiceAccount of executors of HTTP requests, its roles, and their Deployment."""

WORKFLOWS = "workflows.argoproj.io"
"""The kind of objects that tasks may make by default."""
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_OURS = kinds.GROUP


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a role, with its reason."""

    group: str = ""
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def rule(self) -> meta.JsonObject:
        """Return the rule as an rbac/v1 PolicyRule."""
        rule: meta.JsonObject = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule


_FOLLOW = ("list", "watch")
_DECLARED = (
    "tasks",
    "taskobjects",
    "taskclusters",
    "taskclaims",
    "jobs",
    "jobconfigs",
    "syncsets",
    "dataponds",
)

WHERE_SERVED: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=_DECLARED,
        verbs=_FOLLOW,
        why="Follows what users declare.",
    ),
    Right(
        group=_OURS,
        resources=(
            "tasks/status",
            "taskclusters/status",
            "jobs/status",
            "jobconfigs/status",
            "syncsets/status",
            "dataponds/status",
        ),
        verbs=("update",),
        why="Writes state, reason and counts; no other component does.",
    ),
    Right(
        group=_OURS,
        resources=("taskclaims/status",),
        verbs=("patch",),
        why="Gives tasks to the holders of TaskClaims, and says when they must stop.",
    ),
    Right(
        group=_OURS,
        resources=("executors/external",),
        verbs=("use",),
        why="Writes the status of any TaskClaim: who writes one must have this right.",
    ),
    Right(
        group=_OURS,
        resources=("taskclaims",),
        verbs=("delete",),
        why="Removes TaskClaims whose `ttlSecondsAfterFinished` is over.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters",),
        verbs=("get", "patch"),
        why="Holds a TaskCluster that is deleted, by a finalizer, until what runs has ended.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds",),
        verbs=("get", "patch"),
        why="Holds a DataPond that is deleted, by a finalizer, until nodes have removed its data.",
    ),
    Right(
        group=_OURS,
        resources=("tasks",),
        verbs=("delete",),
        why="Removes Tasks whose `ttlSecondsAfterFinished` is over.",
    ),
    Right(
        group=_OURS,
        resources=("jobs",),
        verbs=("create", "get", "patch", "delete"),
        why=(
            "Makes Jobs when their schedule says so, copies the template of the JobConfig into a "
            "Job that names one, and removes Jobs whose time to live or history limit is over."
        ),
    ),
    Right(
        group="serving.knative.dev",
        resources=("services",),
        verbs=("create", "patch"),
        why="Makes the Service that a JobConfig owns (`function.template`), for all of its Jobs.",
    ),
    Right(
        group=_OURS,
        resources=("jobs/finalizers", "jobconfigs/finalizers"),
        verbs=("update",),
        why=(
            "Owns Jobs in the name of a JobConfig, and Pods in that of a Job, as it owns those of "
            "a TaskCluster."
        ),
    ),
    Right(
        group=_OURS,
        resources=("taskclusters",),
        verbs=("create", "delete"),
        why="Makes the TaskClusters that are the groups of a SyncSet, and removes them at its end.",
    ),
    Right(
        group=_OURS,
        resources=("syncsets",),
        verbs=("delete",),
        why="Removes SyncSets whose `keep.ttlSeconds` are over.",
    ),
    Right(
        group=_OURS,
        resources=("syncsets/finalizers",),
        verbs=("update",),
        why="Owns TaskClusters and the `objects` of a SyncSet in its name.",
    ),
    Right(
        resources=("configmaps",),
        verbs=("create", "get"),
        why=(
            "Makes ConfigMaps in `resources.objects` of a SyncSet, and reads those that `env` of a "
            "task names."
        ),
    ),
    Right(
        group=_OURS,
        resources=("taskobjects",),
        verbs=("create", "get", "delete"),
        why="Makes the `outputObject` of a Task; a new run replaces that of the run before.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters/finalizers", "dataponds/finalizers"),
        verbs=("update",),
        why=(
            "Owns Pods and Secrets in the name of a TaskCluster or DataPond with "
            "`blockOwnerDeletion`, where the admission plugin OwnerReferencesPermissionEnforcement "
            "is on."
        ),
    ),
    Right(
        resources=("pods",),
        verbs=(*_FOLLOW, "create", "get", "delete", "patch"),
        why=(
            "Makes and ends worker Pods, Pods that are tasks, and agents of DataPonds. Follows "
            "only those labelled `app.kubernetes.io/managed-by=kilnwork`; asks for one by name "
            "before it gives its worker or its task up. Takes its finalizer off a Pod whose "
            "outcome is stored."
        ),
    ),
    Right(
        resources=("pods/log",),
        verbs=("get",),
        why=(
            "Keeps the output of a Pod that was a task, so that it can be read when that is gone, "
            "and brings that of one that runs while a client reads it."
        ),
    ),
    Right(
        resources=("pods/ephemeralcontainers",),
        verbs=("patch",),
        why="Runs Tasks of TaskClusters with `runtime: EphemeralContainers` in their worker Pods.",
    ),
    Right(
        resources=("secrets",),
        verbs=(*_FOLLOW, "create", "get", "patch"),
        why=(
            "Makes the Secret `CLUSTER-channel` of each TaskCluster, which only its worker Pods "
            "mount, and compares what workers show with it; and `POND-pond` of each DataPond, for "
            "its agents. Patches them when the manager's certificate authority is another. Follows "
            "only those labelled `app.kubernetes.io/managed-by=kilnwork`. Reads Secrets that `env` "
            "of a task names, for its worker."
        ),
    ),
    Right(
        resources=("serviceaccounts",),
        verbs=_FOLLOW,
        why="Says what is missing before a Pod is refused, and makes Pods as soon as it is there.",
    ),
    Right(
        resources=("events",),
        verbs=("create", "patch"),
        why="Tells of failures, retries, kills and long waits in `kubectl describe`.",
    ),
)
"""The manager's in each namespace that it serves."""

ASK: tuple[Right, ...] = (
    Right(
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
        why="Asks whose token it is that a driver or a caller of the REST API shows.",
    ),
    Right(
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        why="Asks whether they may do to Tasks what they ask for.",
    ),
)
"""The manager's that belong to no namespace."""

SEE_NODES: tuple[Right, ...] = (
    Right(
        resources=("nodes",),
        verbs=_FOLLOW,
        why=(
            "Puts agents of DataPonds on the nodes that these select, and looks for room for all "
            "workers of a SyncSet at once (backend `pods`). Only with `--ponds`."
        ),
    ),
)
"""The manager's that belong to no namespace either, if it serves DataPonds."""

FIND: tuple[Right, ...] = (
    Right(
        resources=("namespaces",),
        verbs=_FOLLOW,
        why="Tells drivers which namespaces there are. Not where `--only-in` names them.",
    ),
)
"""The manager's, when it serves all namespaces."""

AT_HOME: tuple[Right, ...] = (
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("create",),
        why="Makes the Lease by which one manager leads; a `create` cannot be bound to a name.",
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "update"),
        why="Takes, renews and releases that Lease.",
        names=(MANAGER,),
    ),
    Right(
        resources=("events",),
        verbs=("create", "patch"),
        why="Says why it does not lead: the Lease names another journal than its own.",
    ),
)
"""The manager's, in its own namespace."""

VIEW: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=(
            "tasks",
            "tasks/log",
            "taskobjects",
            "taskclusters",
            "taskclaims",
            "jobconfigs",
            "syncsets",
            "dataponds",
        ),
        verbs=("get", "list", "watch"),
        why="See Tasks, their output and results: `kiln get`, `tasks`, `logs`, `why`, `wait`.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters/scale",),
        verbs=("get",),
        why="Read how many workers there are, as `kubectl scale` and autoscalers do.",
    ),
    Right(
        group=_OURS,
        resources=("jobs",),
        verbs=("get", "list", "watch"),
        why=(
            "See Jobs and their indexes, and file jobs, their parts, inputs and results: `kiln "
            "files`, `results`."
        ),
    ),
)
LOOK: tuple[Right, ...] = (
    Right(
        resources=("serviceaccounts/token",),
        verbs=("create",),
        why=(
            "Show the manager a token of that account, where the kubeconfig has a client "
            "certificate: it may no more than this role."
        ),
        names=(READER,),
    ),
)
EDIT: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=_DECLARED,
        verbs=("create", "update", "patch", "delete", "deletecollection"),
        why=(
            "Make, cancel, retry and delete them. Who may create Tasks may submit from Python; who "
            "may create Jobs may upload files, steer and delete file jobs too, and runs code in "
            "workers."
        ),
    ),
    Right(
        group=_OURS,
        resources=("taskclaims/status",),
        verbs=("get", "update", "patch"),
        why="Report on a claimed task, with the right below for its executor.",
    ),
    Right(
        group=_OURS,
        resources=("executors/external",),
        verbs=("use",),
        why=(
            "Carry out tasks with `spec.external`, see their inputs and decide on their results: "
            "[write your own executor](../how-to/write-your-own-executor.md#rights)."
        ),
    ),
    Right(
        group=_OURS,
        resources=("dataponds/leases",),
        verbs=("update", "delete"),
        why="Bring data to nodes and keep it there: `kiln data --fetch`, `--release`.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters/scale",),
        verbs=("update", "patch"),
        why="Ask for another number of workers: `kiln scale`, `kubectl scale`, autoscalers.",
    ),
)
DRIVE: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=("tasks",),
        verbs=("create", "get", "list", "watch", "patch"),
        why="Submit from Python, follow, cancel.",
    ),
    Right(
        group=_OURS,
        resources=("tasks/log", "taskclusters", "jobconfigs"),
        verbs=("get", "list"),
        why="Read output, find a TaskCluster or a JobConfig.",
    ),
    Right(
        group=_OURS,
        resources=("jobs",),
        verbs=("create", "get", "list", "watch", "patch", "delete"),
        why="Upload files, and make, follow, steer and delete Jobs and file jobs.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds",),
        verbs=("get", "list"),
        why="See what nodes hold: `kiln data`.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds/leases",),
        verbs=("update", "delete"),
        why="Bring data to nodes and keep it there: `kiln data --fetch`, `--release`.",
    ),
)
PASS: tuple[Right, ...] = (
    Right(
        resources=("services/proxy",),
        verbs=("get", "create", "update", "patch", "delete"),
        why=(
            "Reach the manager through the API server. The manager itself asks for a token and "
            "for the rights above."
        ),
        names=(f"https:{manager.SERVICE}:{manager.PORT_NAME}",),
    ),
)
SEND: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=("executors",),
        verbs=("use",),
        why="Gets HTTP requests of tasks of all namespaces from the manager, which asks for this.",
        names=("http",),
    ),
)
REVEAL: tuple[Right, ...] = (
    Right(
        resources=("secrets",),
        verbs=("get",),
        why=(
            "Reads the Secrets that requests name (`_secretRef`); uses only those labelled "
            "`kilnwork.dev/use=http`, for the hosts that they name."
        ),
    ),
    Right(
        group="serving.knative.dev",
        resources=("services",),
        verbs=("get", *_FOLLOW),
        why="Sees when the functions of tasks are ready, and where they are.",
    ),
)


def of_objects(chosen: settings.Objects) -> Iterator[Right]:
    """Yield the manager's rights on the objects of tasks with `customResource` or `workflow`."""
    for name in chosen.kinds:
        plural, _, group = name.partition(".")
        yield Right(
            group=group,
            resources=(plural,),
            verbs=("create", "get", *_FOLLOW, "patch", "delete"),
            why=(
                "Makes, follows and ends objects for tasks (`--allow-kind`). Follows only those "
                "labelled `app.kubernetes.io/managed-by=kilnwork`."
            ),
        )
    if chosen.impersonate:
        yield Right(
            resources=("serviceaccounts",),
            verbs=("impersonate",),
            why=(
                "Makes objects in the name of accounts that are annotated for it, where a task "
                "says so (`--allow-impersonation`)."
            ),
        )


def manager_account(
    namespace: str,
    *,
    only_in: Sequence[str] = (),
    more: Iterable[Right] = (),
    ponds: bool = False,
) -> Iterator[meta.JsonObject]:
    """Yield the manager's ServiceAccount, its roles and their bindings.

    `more`: further rights in the served namespaces. `ponds`: whether it serves DataPonds.
    """
    served = (*WHERE_SERVED, *more)
    of_all = (*ASK, *(SEE_NODES if ponds else ()))
    whom = (_account(MANAGER, namespace),)
    yield _object("v1", "ServiceAccount", MANAGER, namespace)
    yield cluster_role(MANAGER, of_all if only_in else (*served, *FIND, *of_all))
    yield _binding("ClusterRoleBinding", MANAGER, "ClusterRole", whom)
    for where in only_in:
        yield _role(MANAGER, where, served)
        yield _binding("RoleBinding", MANAGER, "Role", whom, namespace=where)
    yield _role(LEADER, namespace, AT_HOME)
    yield _binding("RoleBinding", LEADER, "Role", whom, namespace=namespace)


def executor_account(namespace: str, *, only_in: Sequence[str] = ()) -> Iterator[meta.JsonObject]:
    """Yield the ServiceAccount of executors of HTTP requests, its roles and their bindings."""
    whom = (_account(HTTP_EXECUTOR, namespace),)
    yield _object("v1", "ServiceAccount", HTTP_EXECUTOR, namespace)
    yield cluster_role(HTTP_EXECUTOR, SEND if only_in else (*SEND, *REVEAL))
    yield _binding("ClusterRoleBinding", HTTP_EXECUTOR, "ClusterRole", whom)
    for where in only_in:
        yield _role(HTTP_EXECUTOR, where, REVEAL)
        yield _binding("RoleBinding", HTTP_EXECUTOR, "Role", whom, namespace=where)


def users(namespace: str) -> Iterator[meta.JsonObject]:
    """Yield roles that extend Kubernetes' view, edit and admin roles, and the right to reach the
    manager.
    """
    yield cluster_role("kilnwork-view", (*VIEW, *LOOK), aggregate=("view", "edit", "admin"))
    yield cluster_role("kilnwork-edit", EDIT, aggregate=("edit", "admin"))
    yield cluster_role(DRIVER, DRIVE)
    yield cluster_role(READER, VIEW)
    yield _role(PROXY, namespace, PASS)
    everybody = {"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"}
    yield _binding("RoleBinding", PROXY, "Role", (everybody,), namespace=namespace)


def drivers(namespace: str) -> Iterator[meta.JsonObject]:
    """Yield the accounts whose tokens drivers and readers request in a namespace, and their
    rights.
    """
    for name in (DRIVER, READER):
        yield _object("v1", "ServiceAccount", name, namespace)
        whom = (_account(name, namespace),)
        yield _binding("RoleBinding", name, "ClusterRole", whom, namespace=namespace)


def cluster_role(
    name: str, rights: Iterable[Right], *, aggregate: Sequence[str] = ()
) -> meta.JsonObject:
    """Return a ClusterRole with these rights, aggregated to the Kubernetes roles that `aggregate`
    names.
    """
    role = _object(f"{RBAC}/v1", "ClusterRole", name)
    role["metadata"]["labels"] |= {f"{_AGGREGATE}{to}": "true" for to in aggregate}
    role["rules"] = [right.rule() for right in rights]
    return role


def labels() -> dict[str, str]:
    """Return the labels of every object that `kiln install` makes.

    Not `managed-by`: that is the label of the manager's own objects.
    """
    return {"app.kubernetes.io/name": "kilnwork", "app.kubernetes.io/part-of": "kilnwork"}


def _object(version: str, kind: str, name: str, namespace: str = "") -> meta.JsonObject:
    metadata = {"name": name, "labels": labels()}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _role(name: str, namespace: str, rights: Iterable[Right]) -> meta.JsonObject:
    role = _object(f"{RBAC}/v1", "Role", name, namespace)
    role["rules"] = [right.rule() for right in rights]
    return role


def _binding(
    kind: str,
    name: str,
    role: str,
    subjects: Sequence[meta.JsonObject],
    *,
    namespace: str = "",
) -> meta.JsonObject:
    binding = _object(f"{RBAC}/v1", kind, name, namespace)
    binding["roleRef"] = {"apiGroup": RBAC, "kind": role, "name": name}
    binding["subjects"] = list(subjects)
    return binding


def _account(name: str, namespace: str) -> meta.JsonObject:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


_INTRODUCTION = """\
# Rights

<!-- Written by `make docs` from kilnwork.cli.installation.rights. -->

What the roles of [`kiln install`](commands.md#kiln-install) allow, and why. The manager runs under
exactly these; a test on a real API server fails if it is ever refused.
"""

_MANAGER = f"""\
## The manager

ServiceAccount `{MANAGER}` in the manager's namespace.

In every namespace, by ClusterRole `{MANAGER}`; with `--only-in` only in those that it names, by a
Role `{MANAGER}` in each:
"""

_QUESTIONS = """\
Of no namespace (ClusterRole `kilnwork-manager`):
"""

_NOTE = """\
RBAC cannot select by label, so `list` on `secrets` covers more than the manager asks for: its
requests name the label, and it keeps nothing else. Who may create Pods in a namespace, as the
manager must, can mount that namespace's Secrets anyway: treat the manager's namespace as you treat
`kube-system`, or let it serve only some namespaces (`--only-in`).

File jobs are no objects: they live in the manager, which asks the API server who may do what to
them, as for Tasks. Who has a right to `jobs.kilnwork.dev` has it to Jobs and to file jobs.

Worker Pods have no rights at all: no token is mounted, unless their TaskCluster names a
`serviceAccountName`; then they have exactly that account's. Who may create Tasks in a namespace
runs programs in its workers, so with the rights of their account; who may create TaskClusters can
name any account of the namespace and mount its Secrets, as who may create Pods or Deployments.

Agents of DataPonds run as root on the nodes, with no capability but to read and write files of any
owner, and mount the directory of the pond and the files that its sources name. Who may create
DataPonds in a namespace can read files of nodes, as who may create Pods with `hostPath`; who may
only ask for data gets nothing but what a source names.

So can who may create Tasks, `kilnwork-driver` included, and what runs in workers and in Pods of
tasks, through its socket: a Task with `spec.pod`, a call with `pod=` and a spawned task with a
`pod` are Pods that the manager creates as they are written. They may name any ServiceAccount,
Secret, ConfigMap and claim of the namespace, directories of the node (`hostPath`), `privileged`,
and the node. The API server sees the manager ask for them, not the user: neither RBAC on `pods`
nor policies about users hold them back. What does:

- **one namespace for those who trust each other**, with no Secret and no account in it that one of
  them may not use; the manager, and whatever has more rights, live in others;
- **Pod Security admission** in each such namespace, which refuses `hostPath`, `privileged` and the
  like any client that asks: `kubectl label namespace NS
  pod-security.kubernetes.io/enforce=restricted`. Do not exempt
  the account of the manager. A Task that is refused so has failed with `AdmissionError`;
  what the manager adds to a Pod passes where the Pod itself does;
- ResourceQuota, LimitRange and admission policies about Pods, as for any Pod.

In its own namespace (Role `kilnwork-leader`):
"""

_EXECUTORS = f"""\
## Executors of HTTP requests

ServiceAccount `{HTTP_EXECUTOR}` in the manager's namespace, with `--http-executors`. With
`--only-in` it reads Secrets only there.
"""

_USERS = f"""\
The manager sees the tokens that its users show. Those of `{DRIVER}` and
`{READER}` are for it alone, by their audience `{manager.AUDIENCE}`: the API server does not take
them. A token that a kubeconfig holds is shown as it is.

Each request that would change something leaves a line `audit` in the manager's log: `user` is whose
token was shown, `credential` the id of that token. Many share the two accounts, so commands say who
asks (`claims`). It is not checked, but the API server's audit log has the same `credential`, with
who asked for the token.

## Users

| role | allows | for |
|---|---|---|"""


def page() -> str:
    """Return the text of docs/reference/rights.md."""
    served = (*WHERE_SERVED, *of_objects(settings.Objects(kinds=(WORKFLOWS,), impersonate=True)))
    lines = [_INTRODUCTION, _MANAGER, *_table(served), "", _QUESTIONS]
    lines += [*_table((*FIND, *ASK, *SEE_NODES)), "", _NOTE, *_table(AT_HOME), ""]
    lines += [_EXECUTORS, *_table((*SEND, *REVEAL)), "", _USERS]
    roles = (
        ("`kilnwork-view`, part of `view`", (*VIEW, *LOOK)),
        ("`kilnwork-edit`, part of `edit` and `admin`", EDIT),
        (f"`{DRIVER}`, bound by `--drivers-in NS`", DRIVE),
        (f"`{READER}`, bound by `--drivers-in NS`", VIEW),
        (f"`{PROXY}`, bound to `system:authenticated`", PASS),
    )
    lines += [
        f"| {name} | {_verbs(right)} {_things(right)} | {right.why} |"
        for name, rights in roles
        for right in rights
    ]
    return "\n".join(lines) + "\n"


def _table(rights: Iterable[Right]) -> Iterator[str]:
    yield "| resources | verbs | why |"
    yield "|---|---|---|"
    for right in rights:
        yield f"| {_things(right)} | {_verbs(right)} | {right.why} |"


def _things(right: Right) -> str:
    group = f".{right.group}" if right.group else ""
    names = f" named `{'`, `'.join(right.names)}`" if right.names else ""
    return ", ".join(f"`{_qualified(one, group)}`" for one in right.resources) + names


def _qualified(plural: str, group: str) -> str:
    """Return the resource as kubectl writes it, such as `tasks.kilnwork.dev/status`."""
    name, slash, sub = plural.partition("/")
    return f"{name}{group}{slash}{sub}"


def _verbs(right: Right) -> str:
    return ", ".join(right.verbs)


if __name__ == "__main__":
    sys.stdout.write(page())
