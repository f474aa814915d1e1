"""The TaskCluster of a group: gate and data are in its template."""

from typing import Any

from kilnwork.api import sync_set_validation
from kilnwork.controllers.gangs import cluster_manifests, port

DATA = port.DataPlaces(path="/pond/runs/risk-g1", outputs="/pond/out")


def spec(**more: Any) -> port.GangSpec:
    given: dict[str, Any] = {
        "namespace": "quant",
        "name": "risk",
        "uid": "u",
        "generation": 1,
        "groups": (),
        "wait_s": 60.0,
        "requeue": True,
        **more,
    }
    return port.GangSpec(**given)


def group(**more: Any) -> port.GroupSpec:
    given = {"name": "g", "cluster": "risk-g1-g", "replicas": 3, "min": 2, **more}
    return port.GroupSpec(**given)


def template(gang: port.GangSpec, of: port.GroupSpec, *, gated: bool = False) -> Any:
    return cluster_manifests.pod_template(gang, of, gated=gated)


def test_task_cluster_is_owned_by_the_sync_set() -> None:
    made = cluster_manifests.task_cluster(spec(), group(account="runner"), gated=False)
    assert made["metadata"]["name"] == cluster_manifests.cluster_name("risk", 1, "g")
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["serviceAccountName"] == "runner"
    plain = cluster_manifests.task_cluster(spec(), group(), gated=False)
    assert "serviceAccountName" not in plain["spec"]


def test_only_gated_pods_have_a_scheduling_gate() -> None:
    own = {"spec": {"schedulingGates": [{"name": "mine"}]}}
    gates = template(spec(), group(template=own), gated=True)["spec"]["schedulingGates"]
    assert gates == [{"name": "mine"}, {"name": sync_set_validation.GATE}]
    assert "schedulingGates" not in template(spec(), group())["spec"]


def test_data_is_mounted_at_the_same_path_as_on_the_node() -> None:
    containers = [
        {"name": "side"},
        {"name": "worker", "env": [{"name": "KILN_DATA", "value": "x"}]},
    ]
    of = group(template={"spec": {"containers": containers}})
    pod = template(spec(data=DATA), of)["spec"]
    side, worker = pod["containers"]
    assert side == {"name": "side"}
    assert {one["name"]: one["value"] for one in worker["env"]} == {
        "KILN_DATA": DATA.path,
        "KILN_OUTPUTS": DATA.outputs,
    }
    assert [(m["mountPath"], m["readOnly"]) for m in worker["volumeMounts"]] == [
        (DATA.path, True),
        (DATA.outputs, False),
    ]
    assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == [DATA.path, DATA.outputs]


def test_the_template_of_the_user_is_unchanged() -> None:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "worker"}]}}
    made = template(spec(data=DATA), group(template=own, spawns_on="risk-g1-h"), gated=True)
    assert own == {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "worker"}]}}
    assert made["metadata"]["labels"] == {
        "a": "b",
        **cluster_manifests.labels(spec(), group()),
    }
    assert {"name": "KILN_SPAWN_CLUSTER", "value": "risk-g1-h"} in made["spec"]["containers"][0][
        "env"
    ]
