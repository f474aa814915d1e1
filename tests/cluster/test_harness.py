"""The test harness itself: components that stop and start, identities, compaction."""

import pytest
from hack.kube import control

from support import kube_cluster, waiting


def test_component_can_be_stopped_killed_paused_and_restarted(kube: kube_cluster.Kube) -> None:
    kube.stop_part("kube-scheduler")
    kube.start_part("kube-scheduler")
    kube.kill_part("kube-apiserver")
    assert not kube.responds("/readyz")
    kube.start_part("kube-apiserver")
    waiting.wait_until(lambda: kube.responds("/readyz"), what="it is ready again")
    kube.pause_part("kube-controller-manager")
    kube.resume_part("kube-controller-manager")


def test_unknown_component_is_refused_by_name(kube: kube_cluster.Kube) -> None:
    with pytest.raises(control.Refused, match="kube-dragon"):
        kube.stop_part("kube-dragon")


def test_user_without_rights_is_refused(kube: kube_cluster.Kube) -> None:
    path = kube.kubeconfig_for("jane", groups=["nobodies"])
    with pytest.raises(Exception, match="exit status 1"):
        kube.kubectl(f"--kubeconfig={path}", "get", "pods")


def test_compaction_ends_an_old_resource_version(kube: kube_cluster.Kube) -> None:
    old = kube.http.get("/api/v1/namespaces", limit=1).ok()["metadata"]["resourceVersion"]
    for number in range(3):
        kube.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"compaction-{number}", "namespace": "default"},
            }
        )
    kube.compact()

    def gone() -> bool:
        response = kube.http.get(
            "/api/v1/configmaps", resourceVersion=old, resourceVersionMatch="Exact", limit=1
        )
        return response.status == 410

    waiting.wait_until(gone, what="the old version is gone")
