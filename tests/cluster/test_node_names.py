"""`kiln node` for a name in use: refused while the process that has it lives."""

from pathlib import Path

from support import kube_cluster, waiting


def test_second_node_is_refused_until_the_first_has_ended(
    kube: kube_cluster.Kube, virtual_node: kube_cluster.VirtualNode, tmp_path: Path
) -> None:
    lease = kube.get("lease", virtual_node.name, "--namespace=kube-node-lease")
    name, here = virtual_node.name, ("--address", kube.address, "--data", str(tmp_path / "data"))
    done = kube.kiln("node", "--name", name, *here, check=False)
    assert done.returncode != 0
    assert f"node {name} is run by {lease['spec']['holderIdentity']}, whose Lease" in done.stderr
    waiting.wait_until(lambda: kube.node_is_ready(name), what="the first is Ready")
    assert virtual_node.stop() == 0
    second = kube_cluster.VirtualNode(kube, tmp_path, name=name)
    second.start()
    assert second.stop() == 0
