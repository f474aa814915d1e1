"""Roles in a cluster and their reasons: for the manager, and for people and programs that use it.

One table makes the roles of `kiln install` and, run as a program, docs/reference/rights.md (`make
docs`). Each verb is there because the code uses it; a test runs the manager with exactly these
rights and expects no denied request.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kilnwork.api import kinds, manager_access, meta
from kilnwork.cli.installation import settings

RBAC = "rbac.authorization.k8s.io"
MANAGER = "kilnwork-manager"
"""Name of the manager's ServiceAccount and of its roles."""

LEADER = "kilnwork-leader"
DRIVER = manager_access.DRIVER_ACCOUNT
READER = manager_access.READER_ACCOUNT
PROXY = "kilnwork-proxy"
HTTP_EXECUTOR = "kilnwork-executor-http"
"""Name of the Deployment of the HTTP executors, of their ServiceAccount, and of its roles."""

WORKFLOWS = "workflows.argoproj.io"
"""The kind of objects that tasks may make by default."""
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_OURS = kinds.GROUP


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """Rule of a role, with the reason for it."""

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
        why="Watches the objects that users create.",
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
        why="Assigns tasks to the holders of TaskClaims, and requests that they stop.",
    ),
    Right(
        group=_OURS,
        resources=("executors/external",),
        verbs=("use",),
        why="Writes the status of any TaskClaim: every client that does needs this right.",
    ),
    Right(
        group=_OURS,
        resources=("taskclaims",),
        verbs=("delete",),
        why="Deletes TaskClaims whose `ttlSecondsAfterFinished` has expired.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters",),
        verbs=("get", "patch"),
        why="Keeps a deleted TaskCluster, with a finalizer, until its running tasks have ended.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds",),
        verbs=("get", "patch"),
        why="Keeps a deleted DataPond, with a finalizer, until nodes have removed its data.",
    ),
    Right(
        group=_OURS,
        resources=("tasks",),
        verbs=("delete",),
        why="Deletes Tasks whose `ttlSecondsAfterFinished` has expired.",
    ),
    Right(
        group=_OURS,
        resources=("jobs",),
        verbs=("create", "get", "patch", "delete"),
        why=(
            "Creates Jobs when their schedule says so, copies the template of the JobConfig into "
            "a Job that names one, and deletes Jobs whose time to live or history limit has been "
            "reached."
        ),
    ),
    Right(
        group="serving.knative.dev",
        resources=("services",),
        verbs=("create", "patch"),
        why=(
            "Creates the Service that a JobConfig owns (`function.template`), for all of its Jobs."
        ),
    ),
    Right(
        group=_OURS,
        resources=("jobs/finalizers", "jobconfigs/finalizers"),
        verbs=("update",),
        why="Sets a JobConfig as owner of Jobs, and a Job as owner of Pods, like a TaskCluster.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters",),
        verbs=("create", "delete"),
        why=(
            "Creates the TaskClusters that are the groups of a SyncSet, and deletes them at its "
            "end."
        ),
    ),
    Right(
        group=_OURS,
        resources=("syncsets",),
        verbs=("delete",),
        why="Deletes SyncSets whose `keep.ttlSeconds` have expired.",
    ),
    Right(
        group=_OURS,
        resources=("syncsets/finalizers",),
        verbs=("update",),
        why="Sets a SyncSet as owner of its TaskClusters and `objects`.",
    ),
    Right(
        resources=("configmaps",),
        verbs=("create", "get"),
        why=(
            "Creates the ConfigMaps in `resources.objects` of a SyncSet, and reads those that "
            "`env` of a task names."
        ),
    ),
    Right(
        group=_OURS,
        resources=("taskobjects",),
        verbs=("create", "get", "delete"),
        why="Creates the `outputObject` of a Task; a new run replaces that of the previous run.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters/finalizers", "dataponds/finalizers"),
        verbs=("update",),
        why=(
            "Sets a TaskCluster or DataPond as owner of Pods and Secrets with "
            "`blockOwnerDeletion`, where the admission plugin "
            "OwnerReferencesPermissionEnforcement is enabled."
        ),
    ),
    Right(
        resources=("pods",),
        verbs=(*_FOLLOW, "create", "get", "delete", "patch"),
        why=(
            "Creates and deletes worker Pods, Pods that are tasks, and agents of DataPonds. "
            "Watches only those labelled `app.kubernetes.io/managed-by=kilnwork`; reads a Pod by "
            "name before it declares its worker or task lost. Removes its finalizer from a Pod "
            "whose outcome is stored."
        ),
    ),
    Right(
        resources=("pods/log",),
        verbs=("get",),
        why=(
            "Stores the output of a Pod that was a task, so that it can be read after the Pod is "
            "gone, and streams that of a running Pod while a client reads it."
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
            "Creates the Secret `CLUSTER-channel` of each TaskCluster, which only its worker Pods "
            "mount, and compares the tokens of workers with it; and `POND-pond` of each DataPond, "
            "for its agents. Patches them when the manager's certificate authority changes. "
            "Watches only those labelled `app.kubernetes.io/managed-by=kilnwork`. Reads Secrets "
            "that `env` of a task names, for its worker."
        ),
    ),
    Right(
        resources=("serviceaccounts",),
        verbs=_FOLLOW,
        why="Reports a missing account before a Pod is refused, and creates Pods once it exists.",
    ),
    Right(
        resources=("events",),
        verbs=("create", "patch"),
        why="Reports failures, retries, kills and long waits in `kubectl describe`.",
    ),
)
"""Rights of the manager in each served namespace."""

ASK: tuple[Right, ...] = (
    Right(
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
        why="Authenticates the tokens of drivers and of clients of the REST API.",
    ),
    Right(
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        why="Checks whether these clients may do what they request.",
    ),
)
"""Cluster-wide rights of the manager."""

SEE_NODES: tuple[Right, ...] = (
    Right(
        resources=("nodes",),
        verbs=_FOLLOW,
        why=(
            "Places agents of DataPonds on the nodes that these select, and checks that all "
            "workers of a SyncSet have room at once (backend `pods`). Only with `--ponds`."
        ),
    ),
)
"""Cluster-wide rights of a manager that serves DataPonds."""

FIND: tuple[Right, ...] = (
    Right(
        resources=("namespaces",),
        verbs=_FOLLOW,
        why="Tells drivers which namespaces exist. Not with `--only-in`.",
    ),
)
"""Cluster-wide rights of a manager that serves all namespaces."""

AT_HOME: tuple[Right, ...] = (
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("create",),
        why="Creates the Lease for leader election; RBAC cannot bind `create` to a name.",
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "update"),
        why="Acquires, renews and releases that Lease.",
        names=(MANAGER,),
    ),
    Right(
        resources=("events",),
        verbs=("create", "patch"),
        why="Reports why it does not lead: the Lease names a journal other than its own.",
    ),
)
"""Rights of the manager in its own namespace."""

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
        why="Read the number of workers, as `kubectl scale` and autoscalers do.",
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
            "Authenticate to the manager with a token of that account, if the kubeconfig has a "
            "client certificate: the account has only this role."
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
            "Create, cancel, retry and delete them. Users who may create Tasks may submit from "
            "Python; users who may create Jobs may also upload files and control and delete file "
            "jobs, which run code in workers."
        ),
    ),
    Right(
        group=_OURS,
        resources=("taskclaims/status",),
        verbs=("get", "update", "patch"),
        why="Report on a claimed task; also needs the right below for its executor.",
    ),
    Right(
        group=_OURS,
        resources=("executors/external",),
        verbs=("use",),
        why=(
            "Execute tasks with `spec.external`, read their inputs and set their results: [write "
            "your own executor](../how-to/write-your-own-executor.md#rights)."
        ),
    ),
    Right(
        group=_OURS,
        resources=("dataponds/leases",),
        verbs=("update", "delete"),
        why="Fetch data to nodes and keep it there: `kiln data --fetch`, `--release`.",
    ),
    Right(
        group=_OURS,
        resources=("taskclusters/scale",),
        verbs=("update", "patch"),
        why="Change the number of workers: `kiln scale`, `kubectl scale`, autoscalers.",
    ),
)
DRIVE: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=("tasks",),
        verbs=("create", "get", "list", "watch", "patch"),
        why="Submit from Python, watch, cancel.",
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
        why="Upload files, and create, watch, control and delete Jobs and file jobs.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds",),
        verbs=("get", "list"),
        why="See which data nodes hold: `kiln data`.",
    ),
    Right(
        group=_OURS,
        resources=("dataponds/leases",),
        verbs=("update", "delete"),
        why="Fetch data to nodes and keep it there: `kiln data --fetch`, `--release`.",
    ),
)
PASS: tuple[Right, ...] = (
    Right(
        resources=("services/proxy",),
        verbs=("get", "create", "update", "patch", "delete"),
        why=(
            "Reach the manager through the API server. The manager itself requires a token and "
            "the rights above."
        ),
        names=(f"https:{manager_access.SERVICE}:{manager_access.PORT_NAME}",),
    ),
)
SEND: tuple[Right, ...] = (
    Right(
        group=_OURS,
        resources=("executors",),
        verbs=("use",),
        why=(
            "Receives the HTTP requests of tasks of all namespaces from the manager, which checks "
            "this right."
        ),
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
        why="Watches when the functions of tasks are ready, and reads their addresses.",
    ),
)


def of_objects(chosen: settings.AllowedObjects) -> Iterator[Right]:
    """Yield the manager's rights on the objects that tasks with `customResource` or `workflow`
    make.
    """
    for name in chosen.kinds:
        plural, _, group = name.partition(".")
        yield Right(
            group=group,
            resources=(plural,),
            verbs=("create", "get", *_FOLLOW, "patch", "delete"),
            why=(
                "Creates, watches and deletes objects for tasks (`--allow-kind`). Watches only "
                "those labelled `app.kubernetes.io/managed-by=kilnwork`."
            ),
        )
    if chosen.impersonate:
        yield Right(
            resources=("serviceaccounts",),
            verbs=("impersonate",),
            why=(
                "Creates objects with the rights of accounts whose annotation permits it, where a "
                "task requests that (`--allow-impersonation`)."
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

    `more`: further rights in the served namespaces. `ponds`: whether the manager serves DataPonds.
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
    """Yield the ServiceAccount of the HTTP executors, with its roles and their bindings."""
    whom = (_account(HTTP_EXECUTOR, namespace),)
    yield _object("v1", "ServiceAccount", HTTP_EXECUTOR, namespace)
    yield cluster_role(HTTP_EXECUTOR, SEND if only_in else (*SEND, *REVEAL))
    yield _binding("ClusterRoleBinding", HTTP_EXECUTOR, "ClusterRole", whom)
    for where in only_in:
        yield _role(HTTP_EXECUTOR, where, REVEAL)
        yield _binding("RoleBinding", HTTP_EXECUTOR, "Role", whom, namespace=where)


def users(namespace: str) -> Iterator[meta.JsonObject]:
    """Yield the roles for people: the right to reach the manager, and rights on kilnwork's kinds.

    The latter extend the Kubernetes roles view, edit and admin.
    """
    yield cluster_role("kilnwork-view", (*VIEW, *LOOK), aggregate=("view", "edit", "admin"))
    yield cluster_role("kilnwork-edit", EDIT, aggregate=("edit", "admin"))
    yield cluster_role(DRIVER, DRIVE)
    yield cluster_role(READER, VIEW)
    yield _role(PROXY, namespace, PASS)
    everybody = {"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"}
    yield _binding("RoleBinding", PROXY, "Role", (everybody,), namespace=namespace)


def drivers(namespace: str) -> Iterator[meta.JsonObject]:
    """Yield the ServiceAccounts for drivers and readers in a namespace, with their rights.

    Drivers and readers request tokens of these accounts.
    """
    for name in (DRIVER, READER):
        yield _object("v1", "ServiceAccount", name, namespace)
        whom = (_account(name, namespace),)
        yield _binding("RoleBinding", name, "ClusterRole", whom, namespace=namespace)


def cluster_role(
    name: str, rights: Iterable[Right], *, aggregate: Sequence[str] = ()
) -> meta.JsonObject:
    """Return a ClusterRole with the given rights.

    It is aggregated to the Kubernetes roles that `aggregate` names.
    """
    role = _object(f"{RBAC}/v1", "ClusterRole", name)
    role["metadata"]["labels"] |= {f"{_AGGREGATE}{to}": "true" for to in aggregate}
    role["rules"] = [right.rule() for right in rights]
    return role


def labels() -> dict[str, str]:
    """Return the labels that every object of `kiln install` has.

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

Roles of [`kiln install`](commands.md#kiln-install), with the reason for each right. The manager
runs with exactly these rights; a test on a real API server fails if a request of it is denied.
"""

_MANAGER = f"""\
## The manager

ServiceAccount `{MANAGER}` in the manager's namespace.

In all namespaces, by ClusterRole `{MANAGER}`; with `--only-in` only in the named ones, by a Role
`{MANAGER}` in each:
"""

_QUESTIONS = """\
Cluster-wide (ClusterRole `kilnwork-manager`):
"""

_NOTE = """\
RBAC cannot select by label, so `list` on `secrets` covers more than the manager uses: its requests
select by the label, and it stores no other Secret. A client that may create Pods in a namespace,
as the manager must, can mount that namespace's Secrets anyway: protect the manager's namespace
like `kube-system`, or let it serve only some namespaces (`--only-in`).

File jobs are not Kubernetes objects: they are stored in the manager, which asks the API server for
the rights of a user, as for Tasks. A right to `jobs.kilnwork.dev` covers both Jobs and file jobs.

Worker Pods have no rights: no token is mounted, unless their TaskCluster sets a
`serviceAccountName`; then they have exactly the rights of that account. Users who may create Tasks
in a namespace run programs in its workers, and so with the rights of their account. Users who may
create TaskClusters can set any account of the namespace and mount its Secrets, like users who may
create Pods or Deployments.

Agents of DataPonds run as root on the nodes, with no capability except to read and write files of
any owner, and mount the directory of the pond and the files that its sources name. Users who may
create DataPonds in a namespace can read files of nodes, like users who may create Pods with
`hostPath`; users who may only request data get only what a source names.

The same is true of users who may create Tasks, `kilnwork-driver` included, and of programs in
workers and in Pods of tasks, through their socket: a Task with `spec.pod`, a call with `pod=` and
a spawned task with a `pod` are Pods that the manager creates as they are written. They may set any
ServiceAccount, Secret, ConfigMap and claim of the namespace, directories of the node (`hostPath`),
`privileged`, and the node. The API server sees the manager as the client, not the user: neither
RBAC on `pods` nor policies about users restrict them. What does:

- **one namespace for users who trust each other**, without a Secret or an account that one of them
  may not use; the manager, and everything with more rights, run in other namespaces;
- **Pod Security admission** in each such namespace, which refuses `hostPath`, `privileged` and the
  like to every client: `kubectl label namespace NS pod-security.kubernetes.io/enforce=restricted`.
  Do not exempt the account of the manager. A Task that is refused this way fails with
  `AdmissionError`; what the manager adds to a Pod is permitted wherever the Pod itself is;
- ResourceQuota, LimitRange and admission policies about Pods, as for any Pod.

In its own namespace (Role `kilnwork-leader`):
"""

_EXECUTORS = f"""\
## Executors of HTTP requests

ServiceAccount `{HTTP_EXECUTOR}` in the manager's namespace, with `--http-executors`. With
`--only-in` it reads Secrets only in the named namespaces.
"""

_USERS = f"""\
The manager sees the tokens of its users. Those of `{DRIVER}` and `{READER}` are valid only for the
manager, by their audience `{manager_access.AUDIENCE}`: the API server does not accept them. A token
in a kubeconfig is sent unchanged.

Each request that changes something writes a line `audit` to the manager's log: `user` is the user
of the token, `credential` the id of the token. Many users share the two accounts, so commands add
who they are (`claims`). This is not verified, but the API server's audit log has the same
`credential`, with the user who requested the token.

## Users

| role | allows | for |
|---|---|---|"""


def page() -> str:
    """Return the text of docs/reference/rights.md."""
    served = (
        *WHERE_SERVED,
        *of_objects(settings.AllowedObjects(kinds=(WORKFLOWS,), impersonate=True)),
    )
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
    """Return a resource in the form in which kubectl writes it: `tasks.kilnwork.dev/status`."""
    name, slash, sub = plural.partition("/")
    return f"{name}{group}{slash}{sub}"


def _verbs(right: Right) -> str:
    return ", ".join(right.verbs)


if __name__ == "__main__":
    sys.stdout.write(page())
