"""SyncSets and DataPonds, as the schemas and CEL rules of their definitions admit and refuse them.

On both servers, with neither admission nor controllers of ours: what a cluster says by itself.
"""

import copy
from typing import Any

import pytest

from support import kube_servers

SPEC: dict[str, Any] = {
    "resources": {"groups": [{"name": "worker", "replicas": 2, "min": 1, "elastic": {"max": 4}}]},
    "data": {
        "snapshots": [
            {
                "name": "trades",
                "from": {"files": "nightly", "path": "parts"},
                "shard": {"by": "range", "unit": "rows", "group": "worker"},
                "deliver": "shard",
            },
            {"name": "prices", "from": {"output": {"set": "eod", "name": "prices"}}},
        ],
        "outputs": [{"name": "prices", "step": "price", "glob": "*.csv"}],
    },
    "flow": {"do": [{"price": {"each": "shard", "of": "data.trades", "command": ["true"]}}]},
    "priority": 5,
}
FROZEN = "cannot be changed within a generation: raise spec.generation"


def sync_set(name: str = "risk", **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": name},
        "spec": {**copy.deepcopy(SPEC), **changes},
    }


def groups(**fields: Any) -> dict[str, Any]:
    return {"resources": {"groups": [{"name": "worker", **fields}]}}


def trades(**shard: Any) -> dict[str, Any]:
    snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": shard}
    return {"data": {"snapshots": [snapshot]}}


@pytest.fixture
def path(namespace: str) -> str:
    return f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/syncsets"


ADMITTED = {
    "shares of rows, outputs, priority": {},
    "controller": {
        "resources": {
            "groups": [{"name": "worker"}],
            "controller": {"serviceAccountName": "driver", "template": {"spec": {}}},
        }
    },
    "required": groups(near=["trades"], nearMode="required", onPodFailed="fail"),
    "as many workers as shards": {
        **groups(replicasOf={"snapshot": "trades", "max": 8}, min=2),
        **trades(by="files", count=8),
    },
    "replay": {"generation": 3, "replay": {"generation": 3, "of": 1}},
}

REFUSED = {
    "two numbers": (
        groups(replicas=2, replicasOf={"snapshot": "trades"}),
        "give either replicas or replicasOf",
    ),
    "min": (groups(replicas=2, min=3), "more than replicas"),
    "min of one": (groups(min=2), "more than replicas"),
    "elastic": (groups(replicas=5, elastic={"max": 4}), "more than elastic.max"),
    "near": (groups(nearMode="required"), "snapshot"),
    "restart-group": (groups(onPodFailed="restart-group"), "write replace, or fail"),
    "controller": (
        {"resources": {"groups": [{"name": "controller"}], "controller": {}}},
        "no group may be called controller beside resources.controller",
    ),
    "two counts": (trades(by="files", count=2, group="worker"), "give either count or group"),
    "unit": (trades(by="range", unit="lines"), "should match '^(bytes|rows)$'"),
    "replay of itself": (
        {"generation": 2, "replay": {"generation": 2, "of": 2}},
        "must be an earlier generation than replay.generation",
    ),
    "priority": ({"priority": 2_000_000_000}, "should be less than or equal to 1000000000"),
}


@pytest.mark.parametrize("changes", ADMITTED.values(), ids=ADMITTED)
def test_valid_sync_sets_are_admitted(
    admin: kube_servers.Http, path: str, changes: dict[str, Any]
) -> None:
    sent = sync_set(**changes)
    made = admin.post(path, sent, dryRun="All").ok()
    assert made["spec"]["flow"] == sent["spec"]["flow"]
    assert made["spec"]["priority"] == 5


@pytest.mark.parametrize(("changes", "wanted"), REFUSED.values(), ids=REFUSED)
def test_invalid_sync_sets_are_rejected(
    admin: kube_servers.Http, path: str, changes: dict[str, Any], wanted: str
) -> None:
    done = admin.post(path, sync_set(**changes), dryRun="All")
    assert done.status == 422, done
    assert wanted in done.message


def test_names_leave_room_for_pod_names(admin: kube_servers.Http, path: str) -> None:
    """The longest is that of a Pod: set, generation, group and number."""
    admin.post(path, sync_set("r" * 44), dryRun="All").ok()
    long = admin.post(path, sync_set("r" * 45), dryRun="All")
    assert long.status == 422
    assert "50" in long.message
    dotted = admin.post(path, sync_set("eod.risk"), dryRun="All")
    assert dotted.status == 422
    assert "metadata.name" in dotted.message


def test_mutable_fields_within_a_generation(admin: kube_servers.Http, path: str) -> None:
    admin.post(path, sync_set()).ok()
    one = f"{path}/risk"
    elastic = copy.deepcopy(SPEC["resources"])
    elastic["groups"][0]["replicas"] = 4
    for change in (
        {"suspend": True},
        {"deadlineSeconds": 60},
        {"keep": {"generations": 1}},
        {"resources": elastic},
        {"priority": 7},
    ):
        admin.patch(one, {"spec": change}).ok()
    fixed = copy.deepcopy(elastic)
    fixed["groups"][0]["min"] = 2
    frozen: dict[str, dict[str, Any]] = {
        "backend": {"backend": "local"},
        "data": {"data": {"outputs": []}},
        "flow": {"flow": {"timeoutSeconds": 5}},
        "resources.groups": {"resources": fixed},
        "resources.gang": {"resources": {**elastic, "gang": {"waitSeconds": 5}}},
        "replay": {"replay": {"generation": 2, "of": 1}},
    }
    for field, change in frozen.items():
        done = admin.patch(one, {"spec": change})
        assert done.status == 422, (field, done)
        assert FROZEN in done.message
        [cause] = done.json["details"]["causes"]
        assert f"spec.{field}".startswith(cause["field"])
        admin.patch(one, {"spec": {**change, "generation": 2}}, dryRun="All").ok()
    back = admin.patch(one, {"spec": {"generation": 2}}).ok()
    assert back["spec"]["generation"] == 2
    lower = admin.patch(one, {"spec": {"generation": 1}})
    assert lower.status == 422
    assert "may only rise" in lower.message


def test_priority_cannot_change_after_the_flow_has_begun(
    admin: kube_servers.Http, path: str
) -> None:
    """Its tasks have it by then. A new generation has one of its own."""
    admin.post(path, sync_set()).ok()
    one = f"{path}/risk"
    admin.patch(f"{one}/status", {"status": {"generation": 1, "phase": "Placing"}}).ok()
    admin.patch(one, {"spec": {"priority": 6}}).ok()
    begun = {"status": {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"}}
    admin.patch(f"{one}/status", begun).ok()
    done = admin.patch(one, {"spec": {"priority": 7}})
    assert done.status == 422
    assert FROZEN in done.message
    assert [one["field"] for one in done.json["details"]["causes"]] == ["spec.priority"]
    admin.patch(one, {"spec": {"priority": 7, "generation": 2}}).ok()
    admin.patch(one, {"spec": {"priority": 8}}).ok()


def test_data_ponds_are_validated(admin: kube_servers.Http, namespace: str) -> None:
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/dataponds"

    def made(**spec: Any) -> kube_servers.Response:
        body = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "DataPond",
            "metadata": {"name": "lake"},
            "spec": spec,
        }
        return admin.post(path, body, dryRun="All")

    good = made(
        path="/data", scrubRate="0", sources=[{"name": "jobs", "uri": "kiln:nightly/parts"}]
    ).ok()
    assert good["spec"]["highWatermark"] == 0.9
    for spec, wanted in (
        ({"highWatermark": 0.5, "lowWatermark": 0.6}, "must not be above highWatermark"),
        ({"path": "data"}, "should match '^/'"),
        (
            {"sources": [{"name": "x", "uri": "ftp://x/"}]},
            "should match '^((https?|file)://|kiln:)'",
        ),
        ({"fetch": {"parallel": 0}}, "should be greater than or equal to 1"),
    ):
        done = made(**spec)
        assert done.status == 422, spec
        assert wanted in done.message
