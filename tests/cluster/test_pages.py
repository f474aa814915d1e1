"""Follows docs/how-to/run-on-a-cluster.md on a node with a kubelet: its files, commands, outputs.

One row of its table of options is needed here too: the image is on the node, in no registry.
"""

import pytest
from hack.image import worker

from support import kube_cluster, page_reader, pages

PAGE = page_reader.Page(
    path=pages.DOCS / "how-to" / "run-on-a-cluster.md",
    left_out={
        "kiln why taskcluster/default": "shows an image that cannot be pulled: test_manager.py",
        "kubectl -n kilnwork-system annotate": "for another journal: test_manager_away.py",
        "kiln install --only drivers --drivers-in research": "there is no such namespace",
        "kiln install --only crds": "the other tests of this cluster need the kinds",
    },
    instead={
        "--image registry.example/kilnwork:0.1.0 --drivers": (
            f"--pull-policy IfNotPresent --image {worker.name()} --drivers"
        ),
        "kubectl apply -f cluster.yaml": (
            "sed -i 's#image: .*#image: " + worker.name() + "#; s#cpu: .2.,#cpu: 10m,#; "
            "s#memory: 4Gi#memory: 256Mi#g' cluster.yaml && kubectl apply -f cluster.yaml"
        ),
    },
)


@pytest.mark.timeout(300)
def test_reader_installs_uses_and_uninstalls(
    kube: kube_cluster.Kube, real_node: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert real_node
    environment = {**kube.environment, "HOME": str(tmp_path_factory.mktemp("home"))}
    reader = page_reader.Reader(PAGE, tmp_path_factory.mktemp("page"), environment)
    try:
        reader.read()
        namespaces = kube.kubectl("get", "namespaces", "-o", "name").split()
        assert "namespace/kilnwork-system" not in namespaces
    finally:
        kube.kubectl("delete", "taskclusters", "--all", "--all-namespaces")
        kube.kubectl("delete", "namespace", "kilnwork-system", "--ignore-not-found")
