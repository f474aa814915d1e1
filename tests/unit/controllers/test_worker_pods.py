"""The objects behind a TaskCluster."""

import base64
from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, names, task_cluster
from kilnwork.controllers import worker_pods

SETTINGS = worker_pods.WorkerPodSettings(
    channel="unix:/run/channel.sock",
    worker_command=("python", "-m", "kilnwork.worker"),
    worker_image="kilnwork/worker:1",
)


def _cluster(name: str = "counter", **spec: Any) -> task_cluster.TaskCluster:
    return task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name=name, namespace="ns", uid="u-1"),
        spec=task_cluster.TaskClusterSpec(**spec),
    )


def _template(made_with: str = "s-1", **spec: Any) -> dict[str, Any]:
    return worker_pods.template(_cluster(**spec), SETTINGS, secret_uid=made_with)


def _worker(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in pod["spec"]["containers"] if "KILN" in str(c))
    return found


def _env(pod: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in _worker(pod)["env"]}


def test_pod_shares_processes_and_volume_only_for_ephemeral_containers() -> None:
    plain, shared = _template(), _template(runtime=task_cluster.Runtime.EPHEMERAL_CONTAINERS)
    assert "shareProcessNamespace" not in plain["spec"]
    assert "KILN_RUNTIME" not in _env(plain)
    assert shared["spec"]["shareProcessNamespace"] is True
    assert {"name": "kilnwork", "emptyDir": {}} in shared["spec"]["volumes"]
    mounts = {m["name"]: m["mountPath"] for m in _worker(shared)["volumeMounts"]}
    assert mounts["kilnwork"] == "/var/run/kilnwork"
    assert _env(shared)["KILN_RUNTIME"] == "EphemeralContainers"


LONG = "a." * 126 + "a"


@pytest.mark.parametrize("name", ["counter", "with.dots", LONG, "x" * 253])
def test_every_cluster_name_gives_valid_names(name: str) -> None:
    cluster = _cluster(name)
    assert names.is_dns_label(worker_pods.pod_name(cluster, 999))
    assert names.is_dns_subdomain(worker_pods.secret_name(name))
    assert not any(names.label_value_problem(v) for v in worker_pods.labels(name).values())


def test_short_names_stay_readable() -> None:
    assert worker_pods.pod_name(_cluster(), 0) == "counter-0"
    assert worker_pods.pod_name(_cluster(deployment_name="dep"), 2) == "dep-2"
    assert worker_pods.secret_name("counter") == "counter-channel"


def test_long_names_that_differ_at_the_end_give_different_names() -> None:
    first, second = _cluster("x" * 252 + "a"), _cluster("x" * 252 + "b")
    assert worker_pods.pod_name(first, 0) != worker_pods.pod_name(second, 0)
    assert worker_pods.labels(first.metadata.name) != worker_pods.labels(second.metadata.name)


def test_secret_holds_the_token_and_belongs_to_the_cluster() -> None:
    secret = worker_pods.secret(_cluster(), "sesame")
    assert base64.b64decode(secret["data"]["token"]) == b"sesame"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_worker_gets_paths_and_names_but_no_secret() -> None:
    env = _env(_template(slots_per_worker=3))
    assert env["KILN_CHANNEL"] == "unix:/run/channel.sock"
    assert env["KILN_TOKEN_FILE"] == "/var/run/secrets/kilnwork.dev/channel/token"
    assert env["KILN_CLUSTER"] == "counter"
    assert env["KILN_SLOTS"] == "3"
    assert env["KILN_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert set(env) == {
        "KILN_CHANNEL",
        "KILN_TOKEN_FILE",
        "KILN_CLUSTER",
        "KILN_SLOTS",
        "KILN_NAMESPACE",
        "KILN_WORKER",
        "KILN_POD_UID",
        "KILN_NODE",
    }


def test_pod_without_account_gets_no_kubernetes_token() -> None:
    spec = _template()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["restartPolicy"] == "Always"


def test_pod_with_account_gets_exactly_that_one() -> None:
    given = {"spec": {"serviceAccountName": "other", "restartPolicy": "Never"}}
    spec = _template(service_account_name="mine", template=given)["spec"]
    assert spec["serviceAccountName"] == "mine"
    assert spec["automountServiceAccountToken"] is True
    assert spec["restartPolicy"] == "Always"


def test_account_of_the_template_is_ignored() -> None:
    given = {"spec": {"serviceAccountName": "other", "automountServiceAccountToken": True}}
    spec = _template(template=given)["spec"]
    assert "serviceAccountName" not in spec
    assert spec["automountServiceAccountToken"] is False


def test_template_fields_that_the_worker_does_not_set_are_kept() -> None:
    given = {
        "metadata": {
            "labels": {"team": "a", "kilnwork.dev/cluster": "x"},
            "annotations": {"b": "c"},
        },
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [
                {"name": "sidecar", "image": "s"},
                {
                    "name": "worker",
                    "image": "mine:1",
                    "args": ["x"],
                    "env": [{"name": "A", "value": "1"}, {"name": "KILN_SLOTS", "value": "99"}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                },
            ],
        },
    }
    pod = _template(template=given)
    worker = _worker(pod)
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["kilnwork.dev/cluster"] == "counter"
    assert pod["metadata"]["annotations"]["b"] == "c"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert [c["name"] for c in pod["spec"]["containers"]] == ["sidecar", "worker"]
    assert worker["image"] == "mine:1"
    assert worker["command"] == ["python", "-m", "kilnwork.worker"]
    assert "args" not in worker
    assert _env(pod)["A"] == "1"
    assert _env(pod)["KILN_SLOTS"] == "1"
    assert [m["name"] for m in worker["volumeMounts"]] == ["scratch", "kiln-channel"]
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["scratch", "kiln-channel"]


def _tolerated(*given: dict[str, Any]) -> dict[str, Any]:
    """By key, for how long a Pod of a template with these tolerations stays on a bad node."""
    spec = _template(template={"spec": {"tolerations": list(given)}})["spec"]
    return {t.get("key", ""): t.get("tolerationSeconds") for t in spec["tolerations"]}


def test_workers_tolerate_a_lost_node_briefly_unless_templated() -> None:
    bad = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert _tolerated() == dict.fromkeys(bad, worker_pods.LOST_NODE_S)
    gpu = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert _tolerated(gpu) == {"gpu": None, **dict.fromkeys(bad, worker_pods.LOST_NODE_S)}
    own = {"key": bad[1], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert _tolerated(own) == {bad[0]: worker_pods.LOST_NODE_S, bad[1]: 5}
    assert _tolerated({"operator": "Exists"}) == {"": None}
    no_schedule = {"operator": "Exists", "effect": "NoSchedule"}
    assert set(_tolerated(no_schedule)) == {"", *bad}


def test_first_container_is_the_worker_if_none_has_that_name() -> None:
    given = {"spec": {"containers": [{"name": "main"}, {"name": "other"}]}}
    assert _worker(_template(template=given))["name"] == "main"


def test_creating_a_pod_does_not_change_the_cluster() -> None:
    given: dict[str, Any] = {"spec": {"containers": [{"name": "worker"}]}}
    _template(template=given)
    assert given == {"spec": {"containers": [{"name": "worker"}]}}


def test_digest_changes_with_the_template() -> None:
    first = worker_pods.digest_of(_template())
    assert first == worker_pods.digest_of(_template())
    assert first != worker_pods.digest_of(_template(slots_per_worker=2))
    assert first != worker_pods.digest_of(_template(service_account_name="a"))
    assert first != worker_pods.digest_of(_template(made_with="s-2"))
    assert first == worker_pods.digest_of(_template(replicas=7))


def test_workers_over_the_network_get_the_ca() -> None:
    settings = msgspec.structs.replace(SETTINGS, channel="tls://m:7443", ca=b"PEM")
    made = worker_pods.template(_cluster(), settings, secret_uid="s-1")
    env = {e["name"]: e.get("value") for e in made["spec"]["containers"][0]["env"]}
    assert env["KILN_CHANNEL"] == "tls://m:7443"
    assert env["KILN_CA_FILE"] == "/var/run/secrets/kilnwork.dev/channel/ca.crt"
    assert worker_pods.secret(_cluster(), "sesame", ca=b"PEM")["data"]["ca.crt"] == "UEVN"


def test_workers_on_the_same_machine_need_no_ca() -> None:
    env = {e["name"] for e in _template()["spec"]["containers"][0]["env"]}
    assert "KILN_CA_FILE" not in env
    assert "ca.crt" not in worker_pods.secret(_cluster(), "sesame")["data"]


def test_a_worker_gets_the_memory_limit_of_its_container() -> None:
    assert "KILN_MEMORY_LIMIT" not in _env(_template())
    containers = [
        {"name": "sidecar", "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "worker", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}},
    ]
    env = _env(_template(template={"spec": {"containers": containers}}))
    limit = {"containerName": "worker", "resource": "limits.memory"}
    assert env["KILN_MEMORY_LIMIT"] == {"resourceFieldRef": limit}
