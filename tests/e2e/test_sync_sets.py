"""SyncSets and DataPonds on `kiln up`: data, workers and flow as one object.

"Statement N" in docstrings: one of what a SyncSet promises (docs/decisions/0043-sync-sets.md). The
same on two kubelets: tests/cluster/test_sync_sets.py. The seventh: tests/faults/test_sync_sets.py;
the first on the rendered Job of Volcano: tests/unit/cli/test_sync_set_rendering.py.
"""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kilnwork as kiln
from kilnwork.kube import config
from support import kube_sets, up_server, waiting

FLOW = """
    do:
      - price:
          each: shard
          of: data.trades
          command: [sh, -c, 'cat $KILN_DATA/trades/*.csv | wc -l > $KILN_OUTPUT']
      - total:
          join: price
          command: [sh, -c, 'cat $KILN_INPUT > $KILN_OUTPUT']
          with: {parts: "${ price.results }", digest: "${ data.trades.digest }"}
"""

SET = """
apiVersion: kilnwork.dev/v1alpha1
kind: DataPond
metadata: {{name: default}}
spec:
  sources: [{{name: lake, uri: "file://{lake}/"}}]
---
apiVersion: kilnwork.dev/v1alpha1
kind: SyncSet
metadata: {{name: risk}}
spec:
  backend: {backend}
  resources:
    groups:
      - name: worker
        replicas: 2
        near: [trades]
        template:
          spec:
            containers:
              - name: worker
                resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}
  data:
    snapshots:
      - {{name: trades, from: {{source: lake, path: trades}}, shard: {{by: files}}}}
  flow:{flow}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path, slots=2) as made:
        yield made


def pond_data(server: up_server.UpServer) -> Path:
    """Return the directory in which the DataPond `default` of namespace `default` has its data."""
    return server.data / "ponds/default/default"


def lake(server: up_server.UpServer, *, lines: int = 10) -> Path:
    """Return a directory with four files of `lines` lines each."""
    directory = server.workdir / "lake" / "trades"
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(4):
        (directory / f"{number}.csv").write_text(f"{number}\n" * lines)
    return directory.parent


def apply(server: up_server.UpServer, *, backend: str = "auto", flow: str = FLOW) -> None:
    manifest = SET.format(lake=lake(server), backend=backend, flow=flow)
    server.kiln("apply", "-f", "-", stdin=manifest)


def status(server: up_server.UpServer, name: str = "risk") -> dict[str, Any]:
    found: dict[str, Any] = server.get("syncsets", name).get("status") or {}
    return found


def wait_phase(
    server: up_server.UpServer, phase: str, *, generation: int = 1, name: str = "risk"
) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        found = status(server, name)
        same = (found.get("phase"), found.get("generation")) == (phase, generation)
        final = found.get("phase") in ("Succeeded", "Failed", "Killed", "AdmissionError")
        wrong = final and not same and found.get("generation") == generation
        assert not wrong, json.dumps(found, indent=1)
        return found if same else None

    found = waiting.wait_until(reached, what=f"SyncSet is {phase}", timeout_s=60.0)
    assert found is not None
    return found


def of_journal(server: up_server.UpServer, path: str) -> dict[str, Any]:
    """Return a document of `/v1` about tasks of the journal."""
    token = config.load(server.data / "kubeconfig").token
    url = f"{server.http}/v1/namespaces/default/{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as found:
        document: dict[str, Any] = json.load(found)
    return document


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["conditions"]}


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_flow_starts_once_all_workers_and_data_are_ready(
    server: up_server.UpServer, backend: str
) -> None:
    """Statements 1 to 3: one object; no step before all workers and data; workers at the data."""
    apply(server, backend=backend)
    found = wait_phase(server, "Succeeded")
    digest = found["snapshots"]["trades"]["digest"]
    assert found["result"]["value"] == {"parts": [40, 40, 40, 40], "digest": digest}
    assert conditions(found) == {
        "SnapshotPinned": "True",
        "DataReady": "True",
        "GangReady": "True",
        "FlowRunning": "False",
        "Succeeded": "True",
    }
    assert (found["dataReady"], found["gang"], found["progress"]) == ("1/1", "2/2", "5/5")
    assert found["backendRef"]["backend"] == backend
    assert server.kiln("why", "syncset/risk").stdout == (
        "SyncSet risk is Succeeded (FlowSucceeded); 5 of 5 tasks have succeeded.\n"
    )
    waiting.wait_until(
        lambda: "risk" not in server.kiln("get", "pods").stdout, what="workers are gone"
    )


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_changed_source_does_not_change_a_generation(
    server: up_server.UpServer, backend: str
) -> None:
    """Statement 4: all steps and replays read the same data, whatever the source contains by
    then.
    """
    flow = """
    do:
      - first: {command: [sh, -c, 'cat $KILN_DATA/trades/*.csv | wc -l > $KILN_OUTPUT']}
      - pause: {command: [sh, -c, 'until [ -e go ]; do sleep 0.05; done']}
      - second: {command: [sh, -c, 'cat $KILN_DATA/trades/*.csv | wc -l > $KILN_OUTPUT']}
"""
    apply(server, backend=backend, flow=flow)
    before = wait_phase(server, "Running")
    lake(server, lines=20)
    (server.workdir / "go").touch()
    assert wait_phase(server, "Succeeded")["result"]["value"] == 40
    done = server.kiln("replay", "risk", "--wait")
    assert "SyncSet risk starts again as generation 2" in done.stdout
    again = wait_phase(server, "Succeeded", generation=2)
    assert again["result"]["value"] == 40
    assert again["snapshots"]["trades"]["digest"] == before["snapshots"]["trades"]["digest"]
    patch = {"spec": {"generation": 3}}
    server.kubectl("patch", "kss", "risk", "--type=merge", "-p", json.dumps(patch))
    fresh = wait_phase(server, "Succeeded", generation=3)
    assert fresh["result"]["value"] == 80
    assert [one["generation"] for one in fresh["generations"]] == [3, 2, 1]


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_other_number_of_workers_reshards_the_same_data(
    server: up_server.UpServer, backend: str
) -> None:
    """Statement 5: as many shards as workers, of one digest; data on the node is not fetched
    again.
    """
    made = yaml.safe_load_all(SET.format(lake=lake(server), backend=backend, flow=FLOW))
    pond, declared = made
    declared["spec"]["data"]["snapshots"][0]["shard"] = {"by": "files", "group": "worker"}
    declared["spec"]["flow"] = kube_sets.flow()
    server.kiln("apply", "-f", "-", stdin=f"{json.dumps(pond)}\n---\n{json.dumps(declared)}")
    first = wait_phase(server, "Succeeded")["result"]["value"]
    assert first["parts"] == [20, 20]
    fetched = counters(server)
    declared["spec"]["generation"] = 2
    declared["spec"]["resources"]["groups"][0]["replicas"] = 4
    server.kiln("apply", "-f", "-", stdin=json.dumps(declared))
    second = wait_phase(server, "Succeeded", generation=2)["result"]["value"]
    assert second == {"parts": [10, 10, 10, 10], "digest": first["digest"]}
    assert counters(server) == fetched


def counters(server: up_server.UpServer) -> dict[str, int]:
    """Return the bytes that the node has fetched, by origin."""
    said = json.loads(server.kiln("data", "default", "-o", "json").stdout)
    [node] = said["ponds"]["default"]
    return {name: count for name, count in node["counters"].items() if name.startswith("fetched")}


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_set_owns_its_additional_objects(server: up_server.UpServer, backend: str) -> None:
    """Statement 6: created before the flow starts, and deleted with the set."""
    made = yaml.safe_load_all(SET.format(lake=lake(server), backend=backend, flow=FLOW))
    pond, declared = made
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "rates"},
        "data": {"eur": "0.92"},
    }
    declared["spec"]["resources"]["objects"] = [config_map]
    server.kiln("apply", "-f", "-", stdin=f"{json.dumps(pond)}\n---\n{json.dumps(declared)}")
    wait_phase(server, "Succeeded")
    [owner] = server.core("configmaps", "rates")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("SyncSet", "risk")
    server.kiln("delete", "syncset", "risk")
    waiting.wait_until(
        lambda: "rates" not in server.kubectl("get", "configmaps").stdout,
        what="the object is gone with its set",
    )


def test_set_is_suspended_resumed_and_cancelled(server: up_server.UpServer) -> None:
    flow = """
    do:
      - first: {command: [sh, -c, 'until [ -e go ]; do sleep 0.05; done']}
      - second: {command: [sleep, "600"]}
"""
    apply(server, flow=flow)
    wait_phase(server, "Running")
    assert server.kiln("pause", "syncset/risk").stdout == "SyncSet risk is suspended\n"
    wait_phase(server, "Suspended")
    (server.workdir / "go").touch()

    def first_is_over() -> bool:
        return bool(status(server)["flow"]["steps"]["first"]["succeeded"] == 1)

    waiting.wait_until(first_is_over, what="what ran has ended")
    assert status(server)["flow"]["steps"]["second"]["running"] == 0
    assert "`kiln resume syncset/risk` resumes it." in server.kiln("why", "kss/risk").stdout
    server.kiln("resume", "syncset/risk")

    def second_runs() -> bool:
        return bool(status(server)["flow"]["steps"]["second"]["running"] == 1)

    waiting.wait_until(second_runs, what="the next step runs")
    server.kiln("cancel", "syncset/risk", "--wait")
    found = wait_phase(server, "Killed")
    assert found["reason"] == "Killed"
    done = server.kiln("wait", "syncset/risk", check=False)
    assert done.returncode == 6
    assert "`kiln retry syncset/risk --failed` runs the failed steps again" in done.stderr
    assert "`kiln replay risk --generation 1` the whole generation on the same data" in done.stderr


ONE_FAILS = """
    do:
      - prepare: {command: [sh, -c, 'echo prepare >> ran; echo 2 > $KILN_OUTPUT']}
      - price:
          each: n
          of: params.numbers
          with: {n: "${ n }", factor: "${ prepare.value }"}
          command:
            - sh
            - -c
            - |
              n=$(sed 's/.*"n": *\\([0-9]*\\).*/\\1/' $KILN_INPUT)
              if [ $n = 17 ]; then
                until [ -e go ]; do sleep 0.05; done
                [ -e mended ] || exit 1
              fi
              echo price $n >> ran
              cat $KILN_DATA/trades/*.csv | wc -l > $KILN_OUTPUT
      - total:
          join: price
          command: [sh, -c, 'echo total >> ran; cat $KILN_INPUT > $KILN_OUTPUT']
    params:
      numbers: NUMBERS
    finally:
      - clean: {command: [sh, -c, 'echo clean >> ran']}
""".replace("NUMBERS", str([*range(64)]))


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_failed_shards_of_a_set_run_again(server: up_server.UpServer, backend: str) -> None:
    """One of 64 shards fails; after the repair it and the later steps run again, on the same
    data.
    """
    apply(server, backend=backend, flow=ONE_FAILS)

    def others_are_over() -> bool:
        return bool(status(server).get("progress") == "64/65")

    waiting.wait_until(others_are_over, what="all other shards have succeeded", timeout_s=60.0)
    (server.workdir / "go").touch()
    first = wait_phase(server, "Failed")
    assert (first["reason"], first["progress"]) == ("ShardsFailed", "65/66")
    before = (server.workdir / "ran").read_text().splitlines()
    assert sorted(before) == sorted(
        ["prepare", "clean", *(f"price {n}" for n in range(64) if n != 17)]
    )
    (server.workdir / "mended").touch()
    lake(server, lines=20)
    done = server.kiln("retry", "syncset/risk", "--failed", "--wait")
    assert done.stdout == "SyncSet risk: what failed starts again as run 2\n"
    found = wait_phase(server, "Succeeded")
    assert found["result"]["value"] == {"results": [40] * 64}
    assert (found["run"], found["progress"]) == (2, "67/67")
    assert found["snapshots"]["trades"]["digest"] == first["snapshots"]["trades"]["digest"]
    assert found["startTime"] == first["startTime"]
    after = (server.workdir / "ran").read_text().splitlines()
    assert after[len(before) :] == ["price 17", "total", "clean"]
    steps = of_journal(server, "syncsets/risk/steps")["items"]
    assert len(steps) == 67
    assert all(one["state"] == "Succeeded" for one in steps)
    tasks = {one["key"]: of_journal(server, f"tasks/{one['task']}") for one in steps}
    assert [key for key, one in tasks.items() if one["run"] == 2] == ["price[17]"]
    assert all(one["attempts"] == 1 for one in tasks.values())
    again = server.kiln("retry", "syncset/risk", "--failed", check=False)
    assert "SyncSet risk is Succeeded, nothing in it has failed" in again.stderr


def test_deleted_set_leaves_no_worker_and_no_data(server: up_server.UpServer) -> None:
    apply(server, flow='\n    do: [{long: {command: [sleep, "600"]}}]\n')
    wait_phase(server, "Running")
    runs = pond_data(server) / "runs/default"
    assert [one.name for one in runs.iterdir()] == ["risk-g1"]
    server.kiln("delete", "syncset/risk")
    waiting.wait_until(
        lambda: "risk" not in server.kiln("get", "pods").stdout, what="workers are gone"
    )
    waiting.wait_until(lambda: list(runs.iterdir()) == [], what="the data's directory is gone")


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_killed_server_continues_the_set(server: up_server.UpServer, backend: str) -> None:
    flow = """
    do:
      - first: {command: [sh, -c, 'echo x >> runs; echo 1 > $KILN_OUTPUT']}
      - second: {command: [sh, -c, 'until [ -e go ]; do sleep 0.05; done'], retry: {maxLosses: 9}}
      - third: {command: [sh, -c, 'cat $KILN_DATA/trades/*.csv | wc -l > $KILN_OUTPUT']}
"""
    apply(server, backend=backend, flow=flow)

    def second_runs() -> bool:
        steps = status(server).get("flow", {}).get("steps", {})
        return bool(steps.get("second", {}).get("running") == 1)

    waiting.wait_until(second_runs, what="the second step runs")
    before = status(server)
    server.kill()
    server.start()
    (server.workdir / "go").touch()
    found = wait_phase(server, "Succeeded")
    assert found["result"]["value"] == 40
    assert found["admissionTime"] == before["admissionTime"]
    assert (server.workdir / "runs").read_text() == "x\n"


def test_bad_input_is_refused_with_its_field(server: up_server.UpServer) -> None:
    text = SET.format(lake=lake(server), backend="pods", flow=FLOW)
    for old, new, wanted in (
        ("replicas: 2", "replicas: 2\n        min: 3", "groups[0].min: Invalid value"),
        ("near: [trades]", "near: [market]", "names no snapshot: 'market'"),
        ("cpu: 100m, ", "", "resources.requests"),
        ("of: data.trades", "of: data.market", "spec.flow.do[0].price.of"),
        ("name: risk}", f"name: {'r' * 45}}}", "have 51 characters together"),
        (
            "near: [trades]",
            "near: [trades]\n        onPodFailed: restart-group",
            "write replace, or fail",
        ),
        (
            "    groups:",
            "    objects: [{apiVersion: v1, kind: Service, metadata: {name: x}}]\n    groups:",
            "`kiln up` does not serve",
        ),
    ):
        assert old in text
        done = server.kiln("apply", "-f", "-", stdin=text.replace(old, new, 1), check=False)
        assert done.returncode != 0
        assert wanted in done.stdout + done.stderr
    assert server.get("syncsets")["items"] == []


def test_spec_is_frozen_within_a_generation(server: up_server.UpServer) -> None:
    apply(server, flow='\n    do: [{long: {command: [sleep, "600"]}}]\n')
    wait_phase(server, "Running")
    patch = {"spec": {"flow": {"do": [{"other": {"command": ["true"]}}]}}}
    done = server.kubectl(
        "patch", "kss", "risk", "--type=merge", "-p", json.dumps(patch), check=False
    )
    assert "cannot be changed within a generation: raise spec.generation" in done.stderr


def test_logs_of_steps_are_printed(server: up_server.UpServer) -> None:
    flow = """
    do:
      - price: {each: i, of: "[1, 2, 3]", command: [sh, -c, 'echo price of $KILN_TASK_ID']}
      - total: {command: [echo, "all priced"]}
"""
    apply(server, flow=flow)
    wait_phase(server, "Succeeded")
    printed = server.kiln("logs", "syncset/risk").stdout.splitlines()
    assert sorted(line.partition("]")[0] for line in printed) == [
        "[price[0",
        "[price[1",
        "[price[2",
        "[total",
    ]
    assert server.kiln("logs", "syncset/risk", "--step", "total").stdout == "all priced\n"
    [one] = server.kiln("logs", "syncset/risk", "--step", "price[1]").stdout.splitlines()
    assert one.startswith("price of ")
    missing = server.kiln("logs", "syncset/risk", "--step", "none")
    assert "step none has printed nothing: SyncSet risk is Succeeded" in missing.stderr
    assert missing.stderr.endswith("No step has the path none; there are price, total.\n")


OUTPUTS = """
apiVersion: kilnwork.dev/v1alpha1
kind: SyncSet
metadata: {{name: writer}}
spec:
  backend: {backend}
  resources: {{groups: [{group}]}}
  data: {{outputs: [{{name: prices, step: price, glob: "*.csv"}}]}}
  flow:
    params: {{numbers: [1, 2, 3]}}
    do:
      - price:
          each: number
          of: params.numbers
          retry: {{maxAttempts: 2}}
          command:
            - sh
            - -c
            - |
              cp $KILN_INPUT $KILN_OUTPUTS/$KILN_TASK_ID-$KILN_ATTEMPT.csv
              echo x > $KILN_OUTPUTS/log.txt
              test $KILN_ATTEMPT = 2
---
apiVersion: kilnwork.dev/v1alpha1
kind: SyncSet
metadata: {{name: reader}}
spec:
  backend: {backend}
  resources: {{groups: [{group}]}}
  data:
    snapshots: [{{name: prices, from: {{output: {{set: writer, name: prices}}}}}}]
  flow:
    do:
      - sum: {{command: [sh, -c, 'ls $KILN_DATA/prices/*-2.csv | wc -l > $KILN_OUTPUT']}}
"""

GROUP = (
    "{name: worker, replicas: 2, template: {spec: {containers: [{name: worker, "
    "resources: {requests: {cpu: 100m, memory: 64Mi}}}]}}}"
)


@pytest.mark.parametrize("backend", ["local", "pods"])
def test_output_of_a_set_is_input_of_another(server: up_server.UpServer, backend: str) -> None:
    """Only chosen output of succeeded attempts; the reader may start first."""
    pond = SET.split("---")[0].format(lake=lake(server))
    sets = OUTPUTS.format(backend=backend, group=GROUP)
    server.kiln("apply", "-f", "-", stdin=f"{pond}---\n{sets}")
    found = wait_phase(server, "Succeeded", name="writer")
    output = found["outputs"]["prices"]
    assert (output["files"], output["nodes"]) == (3, 1)
    read = wait_phase(server, "Succeeded", name="reader")
    assert read["snapshots"]["prices"]["digest"] == output["digest"]
    assert read["result"]["value"] == 3
    directory = pond_data(server) / "runs/default/writer-g1.out/prices"
    assert len(list(directory.iterdir())) == 3
    server.kiln("delete", "syncset/writer")
    waiting.wait_until(lambda: not directory.exists(), what="the output goes with its set")
    outputs = pond_data(server) / "outputs/default"
    waiting.wait_until(lambda: list(outputs.iterdir()) == [], what="nothing is left of it")


def spawns_on(_: int) -> str:
    """Return the cluster of a child: only the controller's children run on another one."""
    return os.environ.get("KILN_SPAWN_CLUSTER", "its own")


def drive() -> dict[str, list[str]]:
    spawned = kiln.task(spawns_on).map(range(4))
    return {"driver": [spawns_on(0)], "spawned": [one.result() for one in spawned]}


def test_controller_function_has_its_own_worker(server: up_server.UpServer) -> None:
    """It waits there, and its children run on the workers of the set."""
    with kiln.SyncSet("driven") as ss:
        ss.group("worker", replicas=1)
        ss.call(drive).options(group=ss.controller())
    with kiln.connect(server.data):
        found = ss.run(timeout=60.0)
    assert found == {"driver": ["driven-g1-worker"], "spawned": ["its own"] * 4}
    assert status(server, "driven")["groups"]["controller"]["desired"] == 1
