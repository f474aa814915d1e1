"""containerd for one node: its configuration, and commands of ctr.

Used by `node`. All files are in the node's directory except /run/containerd, which belongs to the
sandbox.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

PLUGINS = Path("/usr/lib/cni")
PAUSE = "localhost/pause:1"
_NAMESPACE = "k8s.io"


def configure(directory: Path, *, socket: Path, pods: str, host: str) -> Path:
    """Write the file for `containerd --config`. `pods`: their range; `host`: first address in it.

    restrict_oom_score_adj: without CAP_SYS_RESOURCE no Pod would start otherwise. The plugin ptp
    routes every packet of a Pod, so that the rules of kube-proxy see it; behind a bridge they would
    miss packets between Pods unless br_netfilter is loaded.
    """
    network = directory / "cni"
    network.mkdir(parents=True, exist_ok=True)
    plugin = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            "dataDir": str(directory / "addresses"),
            "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": pods, "gateway": host}]],
        },
    }
    conflist = {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}
    (network / "10-pods.conflist").write_text(json.dumps(conflist))
    path = directory / "containerd.toml"
    path.write_text(
        f"""version = 2
root = "{directory}/containerd"
state = "{directory}/run"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{network}"
"""
    )
    return path


def responds(socket: Path) -> bool:
    return _ctr(socket, ["version"]).returncode == 0


def load(socket: Path, images: Sequence[Path]) -> None:
    """Import image files. Raises RuntimeError."""
    for image in images:
        done = _ctr(socket, ["images", "import", str(image)])
        if done.returncode:
            raise RuntimeError(f"containerd does not take {image}: {done.stderr.strip()}")


def _ctr(socket: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    argv = ["ctr", f"--address={socket}", f"--namespace={_NAMESPACE}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
