"""Tables: the columns of every kind, the cells, and what comes with a row."""

import re
from typing import Any

import pytest

from support import kube_servers
from support.kube_tables import cells, table

CORE = "/api/v1/namespaces/{}/"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/"
KILN = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/"
WIDE_OF_NODES = (
    "+Internal-IP",
    "+External-IP",
    "+OS-Image",
    "+Kernel-Version",
    "+Container-Runtime",
)
COLUMNS_OF_JOBS = (
    "Name",
    "Phase",
    "Succeeded:integer",
    "Failed:integer",
    "Total:integer",
    "Started:date",
    "Finished:date",
    "+Reason",
    "+Type",
    "Age:date",
)
COLUMNS_OF_JOB_CONFIGS = (
    "Name",
    "State",
    "Active:integer",
    "Queued:integer",
    "Cron",
    "+Timezone",
    "Last Scheduled:date",
    "Next Run",
    "Age:date",
)
NODE = {
    "conditions": [{"type": "Ready", "status": "False"}],
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "nodeInfo": {
        "kubeletVersion": "v9",
        "osImage": "os",
        "kernelVersion": "k",
        "containerRuntimeVersion": "c://1",
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), ""),
        **dict.fromkeys(("operatingSystem", "architecture"), ""),
    },
}


def columns(shown: Any) -> list[str]:
    """Names; those that only `-o wide` shows begin with +, those with a type say so."""
    found = []
    for column in shown["columnDefinitions"]:
        name = ("+" if column["priority"] else "") + column["name"]
        found.append(name if column["type"] == "string" else f"{name}:{column['type']}")
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (CORE + "configmaps", "Name|Data|Age"),
        (CORE + "secrets", "Name|Type|Data|Age"),
        (CORE + "serviceaccounts", "Name|Secrets|Age"),
        (
            CORE + "pods",
            "Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates",
        ),
        (
            CORE + "events",
            "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name",
        ),
        ("/api/v1/namespaces", "Name|Status|Age"),
        (
            "/api/v1/nodes",
            "Name|Status|Roles|Age|Version|" + "|".join(WIDE_OF_NODES),
        ),
        (RBAC + "roles", "Name|Created At:date"),
        (RBAC + "rolebindings", "Name|Role|Age|+Users|+Groups|+ServiceAccounts"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "Name|Created At:date"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "Name|Role|Age|+Users|+Groups|+ServiceAccounts",
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", "Name|Holder|Age"),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "Name|Created At:date",
        ),
        (
            KILN + "tasks",
            "Name|State|Attempts:integer|Suspend:boolean|+Reason|+Cluster|+Worker|Age:date",
        ),
        (KILN + "taskobjects", "Name|Age:date"),
        (KILN + "jobs", "|".join(COLUMNS_OF_JOBS)),
        (KILN + "jobconfigs", "|".join(COLUMNS_OF_JOB_CONFIGS)),
    ],
)
def test_columns_of_every_kind(
    admin: kube_servers.Http, namespace: str, path: str, expected: str
) -> None:
    """Of every kind, in order, narrow and wide."""
    shown = table(admin, path.format(namespace))
    assert (shown["kind"], shown["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert "|".join(columns(shown)) == expected
    assert shown["metadata"]["resourceVersion"]
    formats = {c["name"]: c["format"] for c in shown["columnDefinitions"]}
    assert formats["Name"] == "name"


def test_cells_of_small_kinds(admin: kube_servers.Http, namespace: str) -> None:
    core = CORE.format(namespace)
    admin.post(
        core + "configmaps",
        {"metadata": {"name": "c"}, "data": {"a": "b"}, "binaryData": {"x": "AAAA"}},
    ).ok()
    admin.post(core + "secrets", {"metadata": {"name": "s"}, "data": {"x": "AAAA"}}).ok()
    admin.post(
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}},
    ).ok()
    assert cells(table(admin, core + "configmaps"), "c") == ["c", 2, "AGE"]
    assert cells(table(admin, core + "secrets"), "s") == ["s", "Opaque", 1, "AGE"]
    assert cells(table(admin, core + "serviceaccounts"), "default") == ["default", 0, "AGE"]
    lease = table(admin, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    assert cells(lease, "l") == ["l", "me", "AGE"]
    one = table(admin, f"/api/v1/namespaces/{namespace}")
    assert cells(one, namespace) == [namespace, "Active", "AGE"]


def test_cells_of_role_bindings(admin: kube_servers.Http, namespace: str) -> None:
    path = RBAC.format(namespace)
    group = "rbac.authorization.k8s.io"
    made = admin.post(path + "roles", {"metadata": {"name": "r"}, "rules": []}).ok()
    subjects = [
        {"kind": "User", "name": "u", "apiGroup": group},
        {"kind": "User", "name": "v", "apiGroup": group},
        {"kind": "Group", "name": "g", "apiGroup": group},
        {"kind": "ServiceAccount", "name": "default", "namespace": namespace},
    ]
    reference = {"apiGroup": group, "kind": "Role", "name": "r"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    admin.post(path + "rolebindings", binding).ok()
    assert cells(table(admin, path + "roles"), "r") == ["r", made["metadata"]["creationTimestamp"]]
    assert cells(table(admin, path + "rolebindings"), "b") == [
        "b",
        "Role/r",
        "AGE",
        "u, v",
        "g",
        f"{namespace}/default",
    ]


def test_cells_of_nodes(admin: kube_servers.Http) -> None:
    """Ready or not, its roles from both labels, and what the kubelet says about itself."""
    name = kube_servers.fresh_name("node")
    labels = {"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}
    node = {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": True}}
    admin.post("/api/v1/nodes", node).ok()
    try:
        before = cells(table(admin, f"/api/v1/nodes/{name}"), name)
        assert before[:5] == [name, "Unknown,SchedulingDisabled", "a,b", "AGE", ""]
        assert before[5:] == ["<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]
        admin.patch(f"/api/v1/nodes/{name}/status", {"status": NODE}).ok()
        after = cells(table(admin, f"/api/v1/nodes/{name}"), name)
        assert after[1:5] == ["NotReady,SchedulingDisabled", "a,b", "AGE", "v9"]
        assert after[5:] == ["192.0.2.1", "<none>", "os", "k", "c://1"]
    finally:
        admin.delete(f"/api/v1/nodes/{name}").ok()


def test_cells_of_events(admin: kube_servers.Http, namespace: str) -> None:
    """Old ones with counts and new ones with a series."""
    path = CORE.format(namespace) + "events"
    about = {"kind": "Pod", "name": "p", "namespace": namespace, "fieldPath": "spec.x"}
    at = "2020-01-01T00:00:00Z"
    old = {
        "metadata": {"name": "old"},
        "involvedObject": about,
        "reason": "Looked",
        "type": "Normal",
        "message": " hello\n",
        "source": {"component": "tester", "host": "h"},
        "count": 3,
        "firstTimestamp": at,
        "lastTimestamp": at,
    }
    new = {
        "metadata": {"name": "new"},
        "involvedObject": {**about, "fieldPath": ""},
        "reason": "Looked",
        "type": "Warning",
        "message": "x",
        "reportingComponent": "c",
        "reportingInstance": "i",
        "action": "Act",
        "eventTime": "2020-01-01T00:00:00.000000Z",
        "series": {"count": 7, "lastObservedTime": "2021-01-01T00:00:00.000000Z"},
    }
    for event in (old, new):
        admin.post(path, event).ok()
    shown = table(admin, path)
    then = cells(shown, "old")[0]
    assert re.fullmatch(r"\d+y(\d+d)?", then)
    assert cells(shown, "old") == [
        *(then, "Normal", "Looked", "pod/p", "spec.x", "tester, h", "hello", then, 3, "old")
    ]
    last, *rest = cells(shown, "new")
    assert last != then
    assert rest == ["Warning", "Looked", "pod/p", "", "c, i", "x", then, 7, "new"]


def test_include_object_selects_the_row_object(admin: kube_servers.Http, namespace: str) -> None:
    """Metadata by default, all of it or nothing if asked; anything else is refused."""
    path = CORE.format(namespace) + "configmaps"
    whole = admin.get(f"{path}/kube-root-ca.crt").ok()

    def row(**query: str) -> Any:
        return table(admin, f"{path}/kube-root-ca.crt", **query)["rows"][0]["object"]

    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    assert row() == {**partial, "metadata": whole["metadata"]}
    assert row(includeObject="Metadata") == row()
    assert row(includeObject="Object") == whole
    assert row(includeObject="None") is None
    headers = {"Accept": kube_servers.TABLE}
    refused = admin.get(path, headers=headers, includeObject="All")
    assert refused.status == 400
    assert refused.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "All": must be '
        "'Metadata', 'Object', 'None', or empty"
    )


@pytest.mark.usefixtures("history")
def test_tables_are_paged(admin: kube_servers.Http, namespace: str) -> None:
    path = CORE.format(namespace) + "configmaps"
    admin.post(path, {"metadata": {"name": "zz"}}).ok()
    first = table(admin, path, limit=1)
    assert [row["cells"][0] for row in first["rows"]] == ["kube-root-ca.crt"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = table(admin, path, **{"continue": first["metadata"]["continue"]})
    assert [row["cells"][0] for row in rest["rows"]] == ["zz"]


def test_empty_table_has_no_rows(admin: kube_servers.Http, namespace: str) -> None:
    shown = table(admin, CORE.format(namespace) + "pods")
    assert shown["rows"] == []
    assert shown["columnDefinitions"]


def test_cells_of_a_custom_kind(admin: kube_servers.Http, namespace: str) -> None:
    """By the JSONPaths of its definition; what is missing is null."""
    path = KILN.format(namespace) + "tasks"
    task = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "t"},
        "spec": {"command": ["true"]},
    }
    admin.post(path, task).ok()
    assert cells(table(admin, path), "t") == ["t", None, None, None, None, "default", None, "AGE"]
    admin.patch(f"{path}/t/status", {"status": {"state": "Running", "attempts": 2}}).ok()
    assert cells(table(admin, path), "t")[:5] == ["t", "Running", 2, None, None]


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH"])
def test_writes_return_a_table_if_accepted(
    admin: kube_servers.Http, namespace: str, verb: str
) -> None:
    """A client that accepts one gets one, but not after a DELETE."""
    path = CORE.format(namespace) + "configmaps"
    headers = {"Accept": kube_servers.TABLE, "Content-Type": "application/json"}
    body = {"metadata": {"name": "x"}}
    if verb != "POST":
        admin.post(path, body).ok()
        path += "/x"
    if verb == "PATCH":
        headers["Content-Type"] = kube_servers.MERGE
    assert admin.send(verb, path, body, headers=headers).ok()["kind"] == "Table"
    path = CORE.format(namespace) + "configmaps/x"
    assert admin.delete(path, headers={"Accept": kube_servers.TABLE}).ok()["kind"] == "Status"
