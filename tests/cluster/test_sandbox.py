"""`python -m hack.kube run`: the command's exit code, and complete removal however it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hack.kube import cgroups

from support import waiting

_RUN = [sys.executable, "-m", "hack.kube", "run"]
_CHECKOUT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.timeout(300),
]


def _left() -> set[str]:
    return {found.name for tree in cgroups.trees() for found in tree.glob("kilnwork-kube-*")}


def test_sandbox_passes_exit_code_and_environment(tmp_path: Path) -> None:
    script = 'kubectl get --raw /readyz > "$0"; echo "$KILN_KUBE_DIRECTORY" >> "$0"; exit 7'
    output = tmp_path / "said"
    before = _left()
    done = subprocess.run(
        [*_RUN, "--", "sh", "-c", script, str(output)], cwd=_CHECKOUT, check=False
    )
    assert done.returncode == 7
    assert output.read_text() == "ok/run/kube\n"
    assert _left() <= before


def test_killed_sandbox_leaves_no_process_and_no_cgroup(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    before = _left()
    argv = [*_RUN, "--node", "--", "sh", "-c", 'touch "$0"; sleep 1000', str(ready)]
    process = subprocess.Popen(argv, cwd=_CHECKOUT)
    waiting.wait_until(ready.exists, what="the cluster is ready", timeout_s=200)
    inside = _namespace_of_children(process.pid)
    assert len(_members(inside)) > 5
    process.kill()
    process.wait()
    waiting.wait_until(lambda: not _members(inside), what="every process has ended")
    waiting.wait_until(lambda: _left() <= before, what="the cgroups are gone")


def _namespace_of_children(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid_for_children").readlink())


def _members(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                same = str((entry / "ns" / "pid").readlink()) == namespace
            except OSError:
                continue
            if same:
                found.append(int(entry.name))
    return found
