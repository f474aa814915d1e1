"""A DataPond on `kiln up`: from the object to the files that a run reads, without fetching
twice.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import exits
from support import file_server, ponds, waiting
from support import up_server as up_support

pytestmark = pytest.mark.timeout(180)

FILES = {"market/a.csv": b"1\n2\n", "market/b/c.csv": b"3\n", "readme": b"hello"}


@pytest.fixture(scope="module")
def lake() -> Iterator[file_server.FileServer]:
    with file_server.FileServer(FILES) as served:
        served.token = "open-sesame"
        yield served


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    ponds.write_files(directory, FILES)
    return directory


@pytest.fixture(scope="module")
def up(
    tmp_path_factory: pytest.TempPathFactory, lake: file_server.FileServer, files: Path
) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        server.kiln("apply", "-f", "-", stdin=json.dumps(_secret(lake)))
        server.kiln("apply", "-f", "-", stdin=json.dumps(_pond(lake, files)))
        server.kiln("wait", "datapond/lake", "--for=condition=Ready", "--timeout", "60s")
        yield server


def _secret(lake: file_server.FileServer) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "lake-token"},
        "stringData": {"token": lake.token},
    }


def _pond(lake: file_server.FileServer, files: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "DataPond",
        "metadata": {"name": "lake"},
        "spec": {
            "capacity": "1Gi",
            "sources": [
                {"name": "disk", "uri": files.as_uri()},
                {
                    "name": "web",
                    "uri": lake.uri,
                    "secretName": "lake-token",
                    "allowAddresses": [f"127.0.0.1:{lake.port}"],
                },
            ],
        },
    }


def _pond_of(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "DataPond",
        "metadata": {"name": name},
        "spec": spec,
    }


def _run(up: up_support.UpServer, lease: str) -> Path:
    return up.data / "ponds/default/lake/runs/default" / f"user_{lease}"


def _node(up: up_support.UpServer) -> dict[str, Any]:
    response = json.loads(up.kiln("data", "lake", "-o", "json").stdout)
    found: dict[str, Any] = response["ponds"]["lake"][0]
    return found


def _agent(up: up_support.UpServer) -> int:
    """Return the pid of the agent of this server."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        ours = f"KILN_POND_PATH={up.data}".encode() in environment
        if ours and command[1:3] == [b"-m", b"kilnwork.pond"]:
            return int(entry.name)
    raise AssertionError("there is no agent")


def test_directory_is_on_the_node_and_is_not_read_again(up: up_support.UpServer) -> None:
    said = up.kiln("data", "lake", "--fetch", "disk", "--lease", "one").stdout
    counted = _node(up)["counters"]["fetchedSource"]

    assert f"{ponds.manifest_of(FILES).digest} (11 B) is on 1 node, held by lease one" in said
    assert ponds.read_files(_run(up, "one") / "disk") == FILES
    assert counted >= 11

    up.kiln("data", "lake", "--fetch", "disk", "--lease", "two")
    assert ponds.read_files(_run(up, "two") / "disk") == FILES
    assert _node(up)["counters"]["fetchedSource"] == counted


def test_http_source_is_read_with_its_secret(
    up: up_support.UpServer, lake: file_server.FileServer
) -> None:
    paths = [f"--path={path}" for path in FILES]

    up.kiln("data", "lake", "--fetch", "web", *paths)
    lake.requests.clear()
    up.kiln("data", "lake", "--fetch", "web", *paths, "--lease", "again")

    assert ponds.read_files(_run(up, "again") / "web") == FILES
    assert lake.gets == []
    process = Path("/proc") / str(_agent(up))
    assert lake.token.encode() not in (process / "environ").read_bytes()
    assert lake.token.encode() not in (process / "cmdline").read_bytes()
    for log in (up.data / "pods").glob("*/containers/agent/*.log"):
        assert lake.token not in log.read_text()


def _file_job(up: up_support.UpServer, *, namespace: str = "default") -> str:
    """Create a file job with three parts and an input that is larger than the journal keeps."""
    work = up.workdir / "work.txt"
    work.write_text("".join(f"{n:07}\n" for n in range(30_000)))
    arguments = ["--mapper", "identity", "--format", "text", "--items-per-part", "10000"]
    job = up.kiln("upload", str(work), *arguments, "-n", namespace).stdout.strip()
    up.kiln("wait", f"file/{job}", "-n", namespace)
    return job


def test_files_of_a_file_job_are_a_source(up: up_support.UpServer) -> None:
    job = _file_job(up)
    result = up.kiln("results", job, "-o", "-").stdout.encode()

    up.kiln("data", "lake", "--fetch", f"kiln:{job}")
    assert ponds.read_files(_run(up, "results") / "results") == {"results.ndjson": result}
    counted = _node(up)["counters"]["fetchedSource"]

    up.kiln("data", "lake", "--fetch", f"kiln:{job}", "--lease", "again")
    assert _node(up)["counters"]["fetchedSource"] == counted

    up.kiln("data", "lake", "--fetch", f"kiln:{job}/parts", "--glob", "0000[13].*")
    parts = ponds.read_files(_run(up, "parts") / "parts")
    assert sorted(parts) == ["00001.ndjson", "00003.ndjson"]
    assert result.startswith(parts["00001.ndjson"])
    assert result.endswith(parts["00003.ndjson"])

    up.kiln("data", "lake", "--fetch", f"kiln:{job}/input")
    work = (up.workdir / "work.txt").read_bytes()
    assert ponds.read_files(_run(up, "input") / "input") == {"input.txt": work}


def test_file_jobs_of_other_namespaces_are_refused(up: up_support.UpServer) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    up.kiln("apply", "-f", "-", stdin=json.dumps(manifest))
    cluster = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "TaskCluster",
        "metadata": {"name": "default", "namespace": "other"},
        "spec": {"replicas": 1},
    }
    up.kiln("apply", "-f", "-", stdin=json.dumps(cluster))
    job = _file_job(up, namespace="other")

    done = up.kiln("data", "lake", "--fetch", f"kiln:{job}", "--lease", "theirs", check=False)

    assert done.returncode != 0
    assert f"there is no file job '{job}' in namespace default" in done.stderr


def test_killed_agent_restarts_with_its_data(up: up_support.UpServer) -> None:
    up.kiln("data", "lake", "--fetch", "disk", "--lease", "kept")
    os.kill(_agent(up), signal.SIGKILL)

    waiting.wait_until(
        lambda: "fetchedSource" not in _node(up)["counters"], what="another agent reports"
    )
    up.kiln("data", "lake", "--fetch", "disk", "--lease", "later")

    assert ponds.read_files(_run(up, "kept") / "disk") == FILES
    assert "fetchedSource" not in _node(up)["counters"]


def test_released_data_is_deleted(up: up_support.UpServer) -> None:
    up.kiln("data", "lake", "--fetch", "disk", "--lease", "short")
    assert _run(up, "short").is_dir()

    assert up.kiln("data", "lake", "--release", "short").stdout == "lease short released\n"

    waiting.wait_until(lambda: not _run(up, "short").exists(), what="the run's files are gone")
    again = up.kiln("data", "lake", "--release", "short", check=False)
    assert "there is no lease" in again.stderr


def test_status_and_tables_list_the_data(up: up_support.UpServer) -> None:
    up.kiln("data", "lake", "--fetch", "disk", "--lease", "shown")
    digest = ponds.manifest_of(FILES).digest

    def has_it() -> bool:
        status = up.get("dataponds", "lake")["status"]
        return any(one["digest"] == digest and one["leases"] for one in status["snapshots"])

    waiting.wait_until(has_it, what="the status has the snapshot")
    status = up.get("dataponds", "lake")["status"]
    assert status["nodes"] == {"ready": 1, "total": 1}
    assert status["bytes"]["capacity"] == 1 << 30
    assert digest[:19] in up.kiln("data", "lake", "--snapshots").stdout
    assert "shown" in up.kiln("data", "lake", "--leases").stdout
    assert up.kiln("data").stdout.splitlines()[1].split()[:3] == ["lake", _node(up)["node"], "true"]


def test_why_explains_the_state_of_a_pond(up: up_support.UpServer) -> None:
    up.kiln("wait", "datapond/lake", "--timeout", "60s")
    good = up.kiln("why", "datapond/lake").stdout
    assert good.startswith("DataPond lake is ready: 1 of 1 node has an agent that reports, with ")

    nowhere = _pond_of("nowhere", nodeSelector={"zone": "none"})
    up.kiln("apply", "-f", "-", stdin=json.dumps(nowhere))
    up.kiln("wait", "datapond/nowhere", "--for=condition=Ready=False", "--timeout", "60s")
    why = up.kiln("why", "datapond/nowhere").stdout
    assert why.startswith("DataPond nowhere is not ready (NoNodes): spec.nodeSelector selects")

    late = up.kiln("wait", "datapond/nowhere", "--timeout", "0s", check=False)
    assert late.returncode == exits.Exit.TIMED_OUT


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["lake", "--fetch", "sea"], "none of the pond's: disk, web"),
        (["lake", "--fetch", "disk", "--path", "../../etc/passwd"], "'..'"),
        (["lake", "--fetch", "disk", "--path", "no"], "is not there"),
        (["lake", "--fetch", "web"], "name its files in paths"),
        (["sea", "--fetch", "disk"], "no DataPond"),
        (["lake", "--fetch", "disk", "--lease", "A/.."], "DNS name"),
        (["--fetch", "disk"], "of one pond"),
        (["lake", "--fetch", "disk", "--snapshots"], "two things"),
        (["lake", "--lease", "x"], "are of --fetch"),
    ],
)
def test_bad_input_is_refused_with_the_reason(
    up: up_support.UpServer, arguments: list[str], why: str
) -> None:
    if "--lease" not in arguments and "--fetch" in arguments:
        arguments = [*arguments, "--lease", "bad"]

    done = up.kiln("data", *arguments, check=False)

    assert done.returncode != 0
    assert why in done.stderr


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"path": "/etc"}, "directory of its own"),
        ({"path": "/a/../b"}, "without '..'"),
        ({"path": "data"}, "spec.path"),
        ({"capacity": "many"}, "spec.capacity"),
        ({"scrubRate": "fast"}, "spec.scrubRate"),
        ({"highWatermark": 0.5, "lowWatermark": 0.6}, "lowWatermark"),
        ({"sources": [{"name": "a", "uri": "ftp://x/"}]}, "spec.sources[0].uri"),
        ({"sources": [{"name": "a", "uri": "https://me:secret@x/"}]}, "no password"),
        ({"sources": [{"name": "a", "uri": "file://host/x"}]}, "file:///PATH"),
        ({"sources": [{"name": "a", "uri": "kiln:2026-11-1/out"}]}, "not 'out'"),
        ({"sources": [{"name": "a", "uri": "kiln:", "secretName": "s"}]}, "for HTTP sources"),
        ({"fetch": {"parallel": 0}}, "spec.fetch.parallel"),
        ({"speed": 1}, "speed"),
    ],
)
def test_invalid_ponds_are_rejected(
    up: up_support.UpServer, spec: dict[str, Any], why: str
) -> None:
    pond = _pond_of("bad", **spec)

    done = up.kiln("apply", "-f", "-", stdin=json.dumps(pond), check=False)

    assert done.returncode != 0
    assert why in done.stderr


def test_deleting_a_pond_deletes_its_data(up: up_support.UpServer, files: Path) -> None:
    pond = _pond_of("short", sources=[{"name": "disk", "uri": files.as_uri()}])
    up.kiln("apply", "-f", "-", stdin=json.dumps(pond))
    up.kiln("data", "short", "--fetch", "disk")
    root = up.data / "ponds/default/short"
    assert (root / "blobs").is_dir()

    up.kiln("delete", "datapond/short")
    up.kiln("wait", "datapond/short", "--for=delete", "--timeout", "60s")

    assert not root.exists()
    assert ponds.read_files(files) == FILES


def test_two_namespaces_have_no_directory_in_common(up: up_support.UpServer, files: Path) -> None:
    """The second pond is refused with the directory's name, and gets no data of the first."""
    path, source = str(up.data / "common"), {"name": "disk", "uri": files.as_uri()}
    first = _pond_of("first", path=path, sources=[source])
    second = _pond_of("second", path=path)
    second["metadata"]["namespace"] = "second"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "second"}}
    up.kiln("apply", "-f", "-", stdin=json.dumps(first))
    up.kiln("data", "first", "--fetch", "disk")
    for one in (namespace, second):
        up.kiln("apply", "-f", "-", stdin=json.dumps(one))

    up.kiln("wait", "datapond/second", "-n", "second", "--for=condition=Ready=False")
    why = up.kiln("why", "datapond/second", "-n", "second").stdout

    assert why.startswith("DataPond second is not ready (PondUnusable): spec.path:")
    assert "of DataPond default/first" in why
    up.kiln("delete", "datapond/second", "-n", "second")
    up.kiln("wait", "datapond/second", "-n", "second", "--for=delete", "--timeout", "60s")
    assert ponds.read_files(Path(path) / "runs/default/user_disk/disk") == FILES


def _set(name: str, pond: str, job: str, command: str) -> dict[str, Any]:
    """Return a SyncSet with a step for each part of a file job."""
    source = {"files": job, "path": "parts"}
    snapshot = {"name": "rows", "from": source, "shard": {"by": "files"}}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": name},
        "spec": {
            "resources": {"groups": [{"name": "worker", "replicas": 1, "near": ["rows"]}]},
            "data": {"pond": {"name": pond}, "snapshots": [snapshot]},
            "flow": {
                "do": [
                    {
                        "count": {
                            "each": "shard",
                            "of": "data.rows",
                            "command": ["sh", "-c", command],
                        }
                    },
                    {
                        "total": {
                            "join": "count",
                            "command": ["sh", "-c", "cat $KILN_INPUT > $KILN_OUTPUT"],
                            "with": {"counts": "${ count.results }"},
                        }
                    },
                ]
            },
        },
    }


def test_set_reads_parts_of_a_file_job_and_keeps_its_pond(up: up_support.UpServer) -> None:
    """A run on a deleted pond continues to its end; then the pond is removed."""
    gate = up.workdir / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    command = f"{wait}; cat $KILN_DATA/rows/*.ndjson | wc -l > $KILN_OUTPUT"
    for one in (_pond_of("held"), _set("rows", "held", _file_job(up), command)):
        up.kiln("apply", "-f", "-", stdin=json.dumps(one))
    up.kiln("wait", "syncset/rows", "--for=condition=FlowRunning", "--timeout", "60s")
    up.kiln("wait", "datapond/held", "--timeout", "60s")

    up.kiln("delete", "datapond/held", "--no-wait")
    up.kiln("wait", "datapond/held", "--for=condition=Ready=False", "--timeout", "60s")
    why = up.kiln("why", "datapond/held").stdout
    assert (
        "not ready (LeasesHeld): it is deleted, and stays while SyncSets hold leases: rows" in why
    )
    assert (up.data / "ponds/default/held/blobs").is_dir()

    gate.touch()
    up.kiln("wait", "syncset/rows", "--timeout", "60s")
    found = up.get("syncsets", "rows")["status"]["result"]["value"]
    assert found == {"counts": [30_000] * 3}
    up.kiln("wait", "datapond/held", "--for=delete", "--timeout", "60s")
    assert not (up.data / "ponds/default/held").exists()
