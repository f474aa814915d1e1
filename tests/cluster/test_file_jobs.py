"""File jobs in a real cluster: everything through the API server's proxy, workers over TLS."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support import kube_cluster, kube_manager, kube_servers, pages

pytestmark = pytest.mark.timeout(180)

SAMPLE = pages.ROOT / "examples" / "30-upload" / "sample_small_work.json"
EXPECTED = SAMPLE.with_name("sample_small_work.results.json")
MIB = 1 << 20

Kiln = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def user(manager: kube_manager.Manager, team: str) -> Callable[[str], Kiln]:
    """Return a function that runs `kiln` as an account with a ClusterRole in the namespace."""

    def made(role: str) -> Kiln:
        account, kubectl = kube_servers.fresh_name(role), manager.kube.kubectl
        here = f"--namespace={team}"
        kubectl("create", "serviceaccount", account, here)
        kubectl(
            *("create", "rolebinding", account, here),
            *(f"--clusterrole={role}", f"--serviceaccount={team}:{account}"),
        )
        token = kubectl("create", "token", account, here).strip()
        kubeconfig = manager.kube.token_kubeconfig(account, token)

        def kiln(
            *words: str, code: int = 0, stdin: bytes = b""
        ) -> subprocess.CompletedProcess[bytes]:
            done = subprocess.run(
                [kube_cluster.KILN, "-n", team, *words],
                env={**manager.kube.environment, "KUBECONFIG": str(kubeconfig)},
                input=stdin, capture_output=True, timeout=90, check=False,
            )  # fmt: skip
            details = f"{words}: {done.returncode}\n{done.stderr.decode()}"
            assert done.returncode == code, f"{details}\n{manager.described()}"
            return done

        return kiln

    return made


def test_file_is_mapped_byte_for_byte(user: Callable[[str], Kiln]) -> None:
    kiln = user("edit")
    done = kiln("upload", str(SAMPLE), "--mapper", "calculator", "--items-per-part", "4", "-o", "-")
    assert done.stdout == EXPECTED.read_bytes()


def test_large_pipe_passes_the_proxy_in_pieces(user: Callable[[str], Kiln]) -> None:
    kiln = user("kilnwork-driver")
    data = b"".join(b"%023d\n" % number for number in range(MIB))  # 24 MiB
    done = kiln("upload", "-", "--format", "text", "--mapper", "identity", "-o", "-", stdin=data)
    assert done.stdout == data


def test_sent_code_runs_and_job_actions_work(user: Callable[[str], Kiln], tmp_path: Path) -> None:
    kiln = user("edit")
    mapper = tmp_path / "mapper.py"
    mapper.write_text("import time\ndef slow(record):\n    time.sleep(0.3)\n    return record\n")
    job = (
        kiln(
            *(
                "upload",
                str(SAMPLE),
                "--mapper",
                f"{mapper}:slow",
                "--items-per-part",
                "1",
                "--paused",
            )
        )
        .stdout.decode()
        .strip()
    )
    kiln("adjust", job, "--max-failed", "1%")
    kiln("resume", job)
    kiln("cancel", "--wait", job)
    assert json.loads(kiln("files", job, "-o", "json").stdout)["phase"] == "Cancelled"
    assert len(kiln("redrive", job, "-o", "-").stdout.splitlines()) == 21
    kiln("delete", job)
    kiln("files", job, code=4)


def test_viewer_cannot_change_jobs(user: Callable[[str], Kiln]) -> None:
    editor, viewer = user("edit"), user("view")
    job = editor("upload", str(SAMPLE), "--mapper", "identity", "--watch").stdout.decode().strip()
    assert viewer("results", job).stdout.count(b"\n") == 21
    for words in (
        ("upload", str(SAMPLE), "--mapper", "identity"),
        ("cancel", job),
        ("delete", job),
    ):
        refused = viewer(*words, code=7)
        assert b'in API group "kilnwork.dev"' in refused.stderr, words
